// Package session opens msgr2.1 sessions over ordinary net connections, for
// the client of the benchmark and for its plain server: lossy, no compression,
// authentication none in crc mode, and in secure mode one that shows the keys.
// After that the connection carries data frames in both directions and this
// package is done with it.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// ErrSession says that the peer did not agree to the session.
var ErrSession = errors.New("no session")

// link is a net.Conn as the handshake wants it. It reads no byte too many.
type link struct{ c net.Conn }

func (l link) ReadFull(ctx context.Context, p []byte) error {
	_, err := io.ReadFull(l.c, p)
	return because(ctx, err)
}

func (l link) Write(ctx context.Context, p []byte) error {
	_, err := l.c.Write(p)
	return because(ctx, err)
}

// because prefers the end of ctx as the reason of err.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// interrupt makes reads and writes of c fail when ctx ends, until release.
func interrupt(ctx context.Context, c net.Conn) (release func()) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// Connect opens a session on c, to the messenger that listens there with the
// given nonce. nonce is that of this client: connections with the same one
// are the same client, and replace each other. It returns the codecs of the data
// frames.
func Connect(ctx context.Context, c net.Conn, peerNonce, nonce uint32, secure bool) (*frame.Encoder, *frame.Decoder, error) {
	defer interrupt(ctx, c)()
	var client auth.Client = none.NewClient(entity())
	if secure {
		client = shownClient{}
	}
	target := v2(c.RemoteAddr(), peerNonce)
	s, peer, err := handshake.Connect(ctx, link{c}, handshake.ConnectConfig{
		Options: handshake.Options{EntityType: wire.Client, Required: wire.BannerRevision1},
		Target:  target,
		Auth:    client,
	})
	if err != nil {
		return nil, nil, err
	}
	defer s.Wipe() // nothing is left to wipe after Release
	own := handshake.LearnClassic(wire.Addr{Type: wire.AddrMsgr2, Nonce: nonce}, peer.SeenAs)
	ident := wire.ClientIdent{
		Addrs: wire.AddrVec{own}, TargetAddr: target, GID: -1, GlobalSeq: 1,
		Supported: wire.FeaturesPacific, Required: wire.FeatureMsgAddr2, Flags: wire.IdentLossy,
	}
	if err := s.WriteFrame(ctx, frame.TagClientIdent, ident.AppendTo(nil)); err != nil {
		return nil, nil, fmt.Errorf("send CLIENT_IDENT: %w", err)
	}
	tag, payload, err := s.ReadFrame(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read SERVER_IDENT: %w", err)
	}
	if tag != frame.TagServerIdent {
		return nil, nil, fmt.Errorf("%w: the server answered CLIENT_IDENT with %v", ErrSession, tag)
	}
	server, err := wire.DecodeServerIdent(payload)
	if err != nil {
		return nil, nil, fmt.Errorf("SERVER_IDENT: %w", err)
	}
	if server.Flags&wire.IdentLossy == 0 {
		return nil, nil, fmt.Errorf("%w: the server wants it lossless, which needs acks", ErrSession)
	}
	enc, dec := s.Release()
	return enc, dec, nil
}

// Accept opens a session on c, which a client has connected, and returns the
// codecs of the data frames.
func Accept(ctx context.Context, c net.Conn, secure bool) (*frame.Encoder, *frame.Decoder, error) {
	defer interrupt(ctx, c)()
	var server auth.Server = none.NewServer(none.ServerConfig{})
	if secure {
		server = NewSecureServer()
	}
	s, _, err := handshake.Accept(ctx, link{c}, handshake.AcceptConfig{
		Options:  handshake.Options{EntityType: wire.OSD, Required: wire.BannerRevision1},
		PeerAddr: addrPort(c.RemoteAddr()),
		Auth:     server,
	})
	if err != nil {
		return nil, nil, err
	}
	defer s.Wipe() // nothing is left to wipe after Release
	tag, payload, err := s.ReadFrame(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read CLIENT_IDENT: %w", err)
	}
	if tag != frame.TagClientIdent {
		return nil, nil, fmt.Errorf("%w: the client sent %v in place of CLIENT_IDENT", ErrSession, tag)
	}
	client, err := wire.DecodeClientIdent(payload)
	if err != nil {
		return nil, nil, fmt.Errorf("CLIENT_IDENT: %w", err)
	}
	if missing := client.Supported.Missing(wire.FeatureMsgAddr2); missing != 0 {
		return nil, nil, fmt.Errorf("%w: the client lacks features %v", ErrSession, missing)
	}
	ident := wire.ServerIdent{
		Addrs: wire.AddrVec{v2(c.LocalAddr(), 0)}, GlobalSeq: 1,
		Supported: wire.FeaturesPacific, Required: wire.FeatureMsgAddr2, Flags: wire.IdentLossy,
	}
	if err := s.WriteFrame(ctx, frame.TagServerIdent, ident.AppendTo(nil)); err != nil {
		return nil, nil, fmt.Errorf("send SERVER_IDENT: %w", err)
	}
	enc, dec := s.Release()
	return enc, dec, nil
}

// entity is who the client is.
func entity() wire.EntityName { return wire.EntityName{Type: wire.Client, ID: "bench"} }

// v2 is a as an address of the protocol.
func v2(a net.Addr, nonce uint32) wire.Addr {
	return wire.Addr{Type: wire.AddrMsgr2, Nonce: nonce, AddrPort: addrPort(a)}
}

// addrPort is a as netip knows it; invalid if it is no TCP address.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
