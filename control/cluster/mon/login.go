package mon

import (
	"context"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A monitor takes no authorizer in msgr1: the connector authenticates by messages (MAuth) once
// the connection is open (Ceph's ProtocolV1.cc).

// login authenticates on a connection of msgr1.
func (c *Client) login(ctx context.Context, s *session) error {
	if c.cfg.Auth == nil {
		return c.loginNone(ctx, s)
	}
	login := c.cfg.Auth.NewLogin()
	defer login.Wipe()
	start, err := login.StartMAuth()
	if err != nil {
		return err
	}
	a, err := s.ask(ctx, 0, start)
	if err != nil {
		return err
	}
	if a.method != auth.Cephx {
		return fmt.Errorf("login: %w: the monitor wants %v", auth.ErrNoMethod, a.method)
	}
	proof, err := login.Challenge(a.payload)
	if err != nil {
		return err
	}
	if a, err = s.ask(ctx, auth.Cephx, proof); err != nil {
		return err
	}
	if _, err := login.Done(a.globalID, 0, a.payload); err != nil {
		return err
	}
	c.m.SetNumber(a.globalID)
	// Tickets that did not come along are needed for the first OSD.
	for c.cfg.Auth.NeedRenew(c.cfg.Clock.Now()) != 0 {
		request, err := c.cfg.Auth.RenewRequest()
		if err != nil || request == nil {
			return err
		}
		if a, err = s.ask(ctx, auth.Cephx, request); err != nil {
			return err
		}
		if err := c.cfg.Auth.HandleReply(a.payload); err != nil {
			return err
		}
	}
	return nil
}

// loginNone sends our name.
func (c *Client) loginNone(ctx context.Context, s *session) error {
	b := wire.AppendU32s([]byte{1}, []uint32{uint32(auth.None)})
	b = c.m.Name().AppendTo(b)
	id := uint64(0)
	if c.cfg.None != nil {
		id = c.cfg.None.GlobalID()
	}
	a, err := s.ask(ctx, 0, le.AppendUint64(b, id))
	if err != nil {
		return err
	}
	if a.method != auth.None {
		return fmt.Errorf("login: %w: the monitor wants %v", auth.ErrNoMethod, a.method)
	}
	if c.cfg.None != nil {
		c.cfg.None.SetGlobalID(a.globalID)
	}
	c.m.SetNumber(a.globalID)
	return nil
}

// ask sends an MAuth, and returns the answer. method is 0 for the first one.
func (s *session) ask(ctx context.Context, method auth.Method, payload []byte) (authReply, error) {
	if err := s.conn.Send(authMessage(method, payload)); err != nil {
		return authReply{}, err
	}
	select {
	case a := <-s.replies:
		if a.result != 0 {
			return a, fmt.Errorf("login: %w: %w: %w", control.ErrGaveUp, control.ErrAuth, &auth.Refused{Errno: a.result})
		}
		return a, nil
	case <-s.conn.Closed():
		return authReply{}, lost(s)
	case <-ctx.Done():
		return authReply{}, fmt.Errorf("%w: no answer to MAuth", ErrNoAnswer)
	}
}
