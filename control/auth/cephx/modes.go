package cephx

import (
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

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
	var modes []auth.Mode
	for _, m := range f(peer) {
		if m == auth.CRC || m == auth.Secure {
			modes = append(modes, m)
		}
	}
	return modes
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
