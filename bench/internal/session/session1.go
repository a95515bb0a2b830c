package session

import (
	"context"
	"fmt"
	"net"

	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/handshake1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/control/wire1"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// Connect1 is Connect in msgr1. Messages have the new header and footer, and no
// signature, so that their codecs are those of the zero [frame1.Config].
func Connect1(ctx context.Context, c net.Conn, peerNonce, nonce uint32) error {
	defer interrupt(ctx, c)()
	target := v2(c.RemoteAddr(), peerNonce).WithType(wire.AddrLegacy)
	s, err := handshake1.Connect(ctx, link{c}, handshake1.ConnectConfig{
		Options: handshake1.Options{EntityType: wire.Client, Own: wire.Addr{Type: wire.AddrLegacy, Nonce: nonce}},
		Target:  target, PeerType: wire.OSD, Auth: none.NewClient(entity()),
	})
	if err != nil {
		return err
	}
	defer s.Wipe()
	answer, err := s.Ask(ctx, wire1.Connect{
		Features: wire.FeaturesPacific, HostType: uint32(wire.Client), GlobalSeq: 1,
		Protocol: wire1.Protocol(wire.Client, wire.OSD), Flags: wire1.FlagLossy,
	})
	if err != nil {
		return err
	}
	if answer.Tag != wire1.TagReady && answer.Tag != wire1.TagSeq || !answer.Lossy() || answer.Received != 0 {
		return fmt.Errorf("%w: the server answered %v", ErrSession, answer)
	}
	if answer.Tag == wire1.TagSeq {
		if err := s.WriteSeq(ctx, wire1.Seq{}); err != nil {
			return err
		}
	}
	enc, _, err := s.Release(wire.FeaturesPacific & answer.Features)
	if err != nil {
		return err
	}
	if f := enc.Form(); f != (frame1.Form{}) {
		return fmt.Errorf("%w: the server wants %+v", ErrSession, f)
	}
	return nil
}
