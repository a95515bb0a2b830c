package msgrtest

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// EstablishLossy1 opens a lossy session in msgr1 on a connection that was dialled to an OSD at
// this address. Messages then have the new header and footer, and no signature: the codecs of
// the zero [frame1.Config]. ctx bounds the handshake.
func EstablishLossy1(ctx context.Context, cfg PeerConfig, conn net.Conn, to wire.Addr) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("msgrtest: peer %v: %w", cfg.Name, err)
		}
	}()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	client := cfg.AuthClient
	if client == nil {
		client = none.NewClient(cfg.Name)
	}
	s, err := handshake1.Connect(ctx, netLink{conn}, handshake1.ConnectConfig{
		Options: handshake1.Options{EntityType: cfg.Name.Type, Own: cfg.Addr},
		Target:  to, PeerType: wire.OSD, Auth: client,
	})
	if err != nil {
		return err
	}
	defer s.Wipe()
	answer, err := s.Ask(ctx, wire1.Connect{
		Features: wire.FeaturesPacific, HostType: cfg.Name.Type, GlobalSeq: 1,
		Protocol: wire1.Protocol(cfg.Name.Type, wire.OSD), Flags: wire1.FlagLossy,
	})
	switch {
	case err != nil:
		return err
	case answer.Tag != wire1.TagReady && answer.Tag != wire1.TagSeq || !answer.Lossy() || answer.Received != 0:
		return fmt.Errorf("the server answered %v", answer)
	case answer.Tag == wire1.TagSeq:
		if err := s.WriteSeq(ctx, wire1.Seq{}); err != nil {
			return err
		}
	}
	enc, _, err := s.Release(wire.FeaturesPacific & answer.Features)
	if err == nil && enc.Form() != (frame1.Form{}) {
		err = errors.New("the server signs its messages")
	}
	return err
}
