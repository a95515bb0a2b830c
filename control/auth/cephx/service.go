package cephx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// service is a service with tickets, or a set of them. Its bits are those of the entity types.
type service uint32

// The services.
const (
	serviceMon  = service(wire.Mon)
	serviceMDS  = service(wire.MDS)
	serviceOSD  = service(wire.OSD)
	serviceMgr  = service(wire.Mgr)
	serviceAuth = service(wire.Auth) // the monitors as the issuer of tickets

	// defaultServices are the services of an ordinary client.
	defaultServices = serviceMon | serviceOSD | serviceMgr

	allServices = serviceMon | serviceMDS | serviceOSD | serviceMgr | serviceAuth
)

// ticketServices are the services other than the issuer, in the order of the wire.
var ticketServices = [...]service{serviceMon, serviceMDS, serviceOSD, serviceMgr}

// String returns names joined with "|", such as "mon|osd"; "none" for the empty set.
func (s service) String() string {
	if s == 0 {
		return "none"
	}
	var names []string
	for bit := serviceMon; bit <= serviceAuth; bit <<= 1 {
		if s&bit&allServices != 0 {
			names = append(names, wire.EntityType(bit).String())
		}
	}
	if rest := s &^ allServices; rest != 0 {
		names = append(names, fmt.Sprintf("0x%x", uint32(rest)))
	}
	return strings.Join(names, "|")
}

// has reports whether s contains all of o.
func (s service) has(o service) bool { return s&o == o }

// defaultModes returns the connection modes that an entity of type own uses with a peer,
// most preferred first, with the reference's default options (Ceph's AuthRegistry.cc):
// secure first for every connection of a monitor and for a client's connection to a
// monitor, crc first for all others. The same list holds for connecting and accepting.
func defaultModes(own, peer wire.EntityType) []auth.Mode {
	if own == wire.Mon || own == wire.Client && peer == wire.Mon {
		return []auth.Mode{auth.Secure, auth.CRC}
	}
	return []auth.Mode{auth.CRC, auth.Secure}
}

// modesFor applies the configured function, if there is one.
func modesFor(f func(wire.EntityType) []auth.Mode, own, peer wire.EntityType) []auth.Mode {
	if f == nil {
		return defaultModes(own, peer)
	}
	return slices.DeleteFunc(slices.Clone(f(peer)), func(m auth.Mode) bool { return m != auth.CRC && m != auth.Secure })
}

// secretFor returns the connection secret if the mode needs it. It overwrites one that the
// mode does not need, or that is too short.
func secretFor(mode auth.Mode, secret []byte) ([]byte, error) {
	if mode == auth.Secure && len(secret) >= auth.ConnectionSecretMin {
		return secret, nil
	}
	clear(secret)
	if mode == auth.Secure {
		return nil, errConnectionSecret
	}
	return nil, nil
}
