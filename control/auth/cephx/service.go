package cephx

import (
	"fmt"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Service is a service with tickets, or a set of them. Its bits are those of the entity types.
type Service uint32

// The services.
const (
	ServiceMon  Service = Service(wire.Mon)
	ServiceMDS  Service = Service(wire.MDS)
	ServiceOSD  Service = Service(wire.OSD)
	ServiceMgr  Service = Service(wire.Mgr)
	ServiceAuth Service = Service(wire.Auth) // the monitors as the issuer of tickets

	// defaultServices are the services of an ordinary client.
	defaultServices = ServiceMon | ServiceOSD | ServiceMgr

	allServices = ServiceMon | ServiceMDS | ServiceOSD | ServiceMgr | ServiceAuth
)

// ticketServices are the services other than the issuer, in the order of the wire.
var ticketServices = [...]Service{ServiceMon, ServiceMDS, ServiceOSD, ServiceMgr}

// String returns names joined with "|", such as "mon|osd"; "none" for the empty set.
func (s Service) String() string {
	if s == 0 {
		return "none"
	}
	var names []string
	for bit := ServiceMon; bit <= ServiceAuth; bit <<= 1 {
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
func (s Service) has(o Service) bool { return s&o == o }
