package session

import (
	"strings"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The keys of both sides in mode secure: cephx with known keys measures the cost of encryption, and
// protects nothing.
const keys = `[mon.]
key = AQBoZmRlAAAAABAAEQITBBUGFwgZCgsMDQ4PEA==
[client.bench]
key = AQBoZmRlAAAAABAAAQIDBAUGBwgJCgsMDQ4PEA==
`

// NewSecureServer returns the authentication of a server that forces mode secure, for clients of
// this package. The server has to be a mon: other daemons accept tickets alone.
func NewSecureServer() (auth.Server, error) {
	ring, err := cephx.ReadKeyring(strings.NewReader(keys))
	if err != nil {
		return nil, err
	}
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	if err != nil {
		return nil, err
	}
	return cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority, Modes: secureOnly})
}

// newSecureClient is its other side.
func newSecureClient() (auth.Client, error) {
	ring, err := cephx.ReadKeyring(strings.NewReader(keys))
	if err != nil {
		return nil, err
	}
	own, _ := ring.Lookup(entity())
	return cephx.NewClient(cephx.ClientConfig{Name: entity(), Key: own.Key, Modes: secureOnly})
}

func secureOnly(wire.EntityType) []auth.Mode { return []auth.Mode{auth.Secure} }
