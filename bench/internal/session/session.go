// Package session opens lossy sessions over ordinary net connections, for the client of
// the benchmark and for its plain server: msgr2.1 without compression, with authentication
// none in crc mode, and cephx with known keys in secure mode; or msgr1. After that
// the connection carries data frames in both directions and this package is done with it.
package session

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// unbound takes the deadline of a handshake away again.
func unbound(c net.Conn, err error) error {
	if err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// Open opens a session on c, to the messenger that listens there with the given nonce. nonce is
// that of this client: connections with the same one are the same client, and replace each other.
// An error stays with the Peer.
func Open(ctx context.Context, c net.Conn, peerNonce, nonce uint32, secure bool) (*msgrtest.Peer, error) {
	cfg := msgrtest.PeerConfig{Name: entity(), Number: -1, Addr: v2(c.LocalAddr(), nonce)}
	var err error
	if secure {
		if cfg.AuthClient, err = newSecureClient(); err != nil {
			return nil, err
		}
	}
	p := msgrtest.PeerOn(ctx, cfg, c, v2(c.RemoteAddr(), peerNonce))
	p.Handshake()
	ident := p.ClientIdent(0, 1)
	ident.Flags = wire.IdentLossy
	p.SendPayload(frame.TagClientIdent, ident)
	p.ExpectServerIdent()
	return p, nil
}

// Connect is Open up to the codecs of the data frames.
func Connect(ctx context.Context, c net.Conn, peerNonce, nonce uint32, secure bool) (*frame.Encoder, *frame.Decoder, error) {
	p, err := Open(ctx, c, peerNonce, nonce, secure)
	if err != nil {
		return nil, nil, err
	}
	enc, dec, err := p.Codecs()
	return enc, dec, unbound(c, err)
}

// Connect1 is Connect in msgr1. Its messages have the codecs of the zero [frame1.Config].
func Connect1(ctx context.Context, c net.Conn, peerNonce, nonce uint32) error {
	cfg := msgrtest.PeerConfig{Name: entity(), Addr: wire.Addr{Type: wire.AddrLegacy, Nonce: nonce}}
	return unbound(c, msgrtest.EstablishLossy1(ctx, cfg, c, v2(c.RemoteAddr(), peerNonce).WithType(wire.AddrLegacy)))
}

// Accept opens a session on c, which a client has connected, and returns the
// codecs of the data frames.
func Accept(ctx context.Context, c net.Conn, secure bool) (*frame.Encoder, *frame.Decoder, error) {
	cfg := msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Mon, ID: "a"}, Addr: v2(c.LocalAddr(), 0)}
	var err error
	if secure {
		if cfg.AuthServer, err = NewSecureServer(); err != nil {
			return nil, nil, err
		}
	}
	p := msgrtest.PeerOn(ctx, cfg, c, wire.Addr{})
	p.Handshake()
	p.ExpectClientIdent()
	p.SendPayload(frame.TagServerIdent, p.ServerIdent(0, 1))
	enc, dec, err := p.Codecs()
	return enc, dec, unbound(c, err)
}

func entity() wire.EntityName { return wire.EntityName{Type: wire.Client, ID: "bench"} }

// v2 is a as an address of the protocol, without an IP and a port if it is no TCP address.
func v2(a net.Addr, nonce uint32) wire.Addr {
	to := wire.Addr{Type: wire.AddrMsgr2, Nonce: nonce}
	if t, ok := a.(*net.TCPAddr); ok {
		to.AddrPort = netip.AddrPortFrom(t.AddrPort().Addr().Unmap(), uint16(t.Port))
	}
	return to
}

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

func newSecureClient() (auth.Client, error) {
	ring, err := cephx.ReadKeyring(strings.NewReader(keys))
	if err != nil {
		return nil, err
	}
	own, _ := ring.Lookup(entity())
	return cephx.NewClient(cephx.ClientConfig{Name: entity(), Key: own.Key, Modes: secureOnly})
}

func secureOnly(wire.EntityType) []auth.Mode { return []auth.Mode{auth.Secure} }
