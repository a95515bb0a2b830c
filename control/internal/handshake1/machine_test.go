package handshake1_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// machine is a lossy session over a handshake, from its connect message to the open connection.
// It has no handler.
type machine struct {
	s    session1.Session
	env  session.Env
	said []string // sent and received, as text
	err  error
}

// step returns the frame that is to be sent.
func (d *machine) step(ev session.Event) (send session.Frame) {
	for _, a := range session.Advance(&d.s, ev, d.env) {
		switch a := a.(type) {
		case session.Send:
			send = a.Frame
			d.said = append(d.said, "> "+fmt.Sprint(send))
		case session.MoveHandler:
			send = d.step(session.HandlerMoved{Attempt: a.Attempt})
		case session.Faulted:
			d.err = a.Err
		case session.Hangup:
			d.err = a.Err
		}
	}
	return send
}

// hears steps with a frame of the peer.
func (d *machine) hears(f session.Frame, ev session.Event) session.Frame {
	d.said = append(d.said, "< "+fmt.Sprint(f))
	return d.step(ev)
}

// connect opens the session over c. An error of c ends it.
func (d *machine) connect(ctx context.Context, c *handshake1.Connector) error {
	d.step(session.Connect{})
	f := d.step(session.Authenticated{Attempt: d.s.Attempt, IO: d.s.IO})
	for f != nil && d.err == nil {
		switch m := f.(type) {
		case wire1.Connect:
			var a session1.Answer
			if a, d.err = c.Ask(ctx, m); d.err == nil {
				f = d.hears(a, session.Answer{Attempt: d.s.Attempt, Frame: a})
			}
		case wire1.Seq:
			d.err = c.WriteSeq(ctx, m)
			f = d.step(session.Sent{Attempt: d.s.Attempt})
		}
	}
	return d.end()
}

// accept opens a session of ours with the peer of a. It returns the first error of a.
func (d *machine) accept(ctx context.Context, a *handshake1.Acceptor, own wire.EntityType, policy session.Policy) error {
	for {
		m, err := a.ReadConnect(ctx)
		if err != nil {
			return err
		}
		if d.s.State == session.None {
			d.s = session1.New(own, policy, session.Peer{Type: m.HostType}, session.Backoff{})
			d.step(session.Accept{})
		}
		asked := session1.Asked{Connect: m}
		if asked.Authorizer, err = a.Verify(ctx); err != nil {
			return err
		}
		reply, ok := d.hears(m, session.Request{Frame: asked, From: a.From(), Ours: true}).(session1.Answer)
		if !ok || d.err != nil {
			return d.end()
		}
		if err := a.Reply(ctx, reply); err != nil {
			return err
		}
		if reply.Tag == wire1.TagSeq {
			q, err := a.ReadSeq(ctx)
			if err != nil {
				return err
			}
			d.hears(q, session.Answer{Attempt: d.s.Attempt, Frame: q})
			return d.end()
		}
	}
}

// end is an error unless the session is open.
func (d *machine) end() error {
	if d.err == nil && d.s.State != session.Ready {
		d.err = errors.New("the connection was not opened")
	}
	return d.err
}
