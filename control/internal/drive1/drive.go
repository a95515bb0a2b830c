// Package drive1 runs the machine of package session1 over a handshake of package
// handshake1, for tests: one session from its connect message to the open connection. It
// has no handler, so what the machine wants of that is done at once.
package drive1

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

// ErrNotOpen means that the machine did not open the connection.
var ErrNotOpen = errors.New("the connection was not opened")

// driver is one session under way.
type driver struct {
	s    session1.Session
	env  session.Env
	said []string // what was sent and received, as text
	open bool
	err  error

	takeOver, reset bool // the existing session takes the socket, and is reset
}

// play steps, does what is not for the socket, and returns what is to be sent.
func (d *driver) play(ev session.Event) (send session.Frame) {
	next, actions := session.Step(d.s, ev, d.env)
	d.s = next
	for _, a := range actions {
		switch a := a.(type) {
		case session.Send:
			send = a.Frame
			d.said = append(d.said, "> "+fmt.Sprint(send))
		case session.MoveHandler:
			send = d.play(session.HandlerMoved{Attempt: a.Attempt})
		case session.Open:
			d.open = true
		case session.TakeOver:
			d.takeOver, d.reset = true, a.Reset
		case session.Faulted:
			d.err = a.Err
		case session.Hangup:
			d.err = a.Err
		case session.Illegal:
			d.err = a.Err
		}
	}
	return send
}

// hear plays a frame of the peer.
func (d *driver) hear(f session.Frame, ev session.Event) session.Frame {
	d.said = append(d.said, "< "+fmt.Sprint(f))
	return d.play(ev)
}

// end is the result of a session.
func (d *driver) end() (session1.Session, []string, error) {
	if d.err == nil && !d.open {
		d.err = fmt.Errorf("%w: state %v", ErrNotOpen, d.s.State)
	}
	return d.s, d.said, d.err
}

// Connect opens a session, which is ready to dial, or resumes it, over c. It returns the
// session, and what was said in the words of the machine.
func Connect(ctx context.Context, c *handshake1.Connector, s session1.Session, env session.Env) (session1.Session, []string, error) {
	d := driver{s: s, env: env}
	io := s.IO
	if s.State == session.None {
		d.play(session.Connect{})
	}
	f := d.play(session.Authenticated{Attempt: d.s.Attempt, IO: io})
	for f != nil && d.err == nil {
		switch m := f.(type) {
		case wire1.Connect:
			a, err := c.Ask(ctx, m)
			if err != nil {
				return d.s, d.said, err
			}
			f = d.hear(a, session.Answer{Attempt: d.s.Attempt, Frame: a})
		case wire1.Seq:
			if err := c.WriteSeq(ctx, m); err != nil {
				return d.s, d.said, err
			}
			f = d.play(session.Sent{Attempt: d.s.Attempt})
		}
	}
	return d.end()
}

// Accepting is what a socket is accepted with.
type Accepting struct {
	Own wire.EntityType
	// Make says what the session of a peer of some type is.
	Make func(peer wire.EntityType) session1.Session
	// Existing is the session that the peer may resume, nil for none. Its handler stands
	// still.
	Existing *session1.Session
	Env      session.Env
}

// Accept opens a session on a, or has the existing one resumed. It returns that session,
// and what was said in the words of the machine.
func Accept(ctx context.Context, a *handshake1.Acceptor, cfg Accepting) (session1.Session, []string, error) {
	d := driver{env: cfg.Env}
	taken := false // the socket belongs to the existing session
	for {
		m, err := a.ReadConnect(ctx)
		if err != nil {
			return d.s, d.said, err
		}
		peer := wire.EntityType(m.HostType)
		if d.s.State == session.None {
			d.s = cfg.Make(peer)
			d.play(session.Accept{})
		}
		asked := session1.Asked{Connect: m}
		if session1.Refuse(&m, d.s.Policy.Required, wire1.Protocol(peer, cfg.Own)) == 0 {
			if asked.Authorizer, err = a.Verify(ctx); err != nil {
				return d.s, d.said, err
			}
		}
		req := session.Request{Frame: asked, From: a.From(), Ours: true}
		if cfg.Existing != nil {
			req.Existing = cfg.Existing
		}
		var ev session.Event = req
		if taken {
			ev = session.Answer{Attempt: d.s.Attempt, Frame: asked}
		}
		f := d.hear(m, ev)
		if d.takeOver && !taken {
			taken = true
			d.s = *cfg.Existing
			io := d.s.IO
			d.play(session.Replace{Frame: asked, Reset: d.reset})
			f = d.play(session.Suspended{Attempt: d.s.Attempt, IO: io})
		}
		reply, ok := f.(session1.Answer)
		if !ok || d.err != nil {
			return d.end()
		}
		if err := a.Reply(ctx, reply); err != nil {
			return d.s, d.said, err
		}
		switch reply.Tag {
		case wire1.TagSeq:
			q, err := a.ReadSeq(ctx)
			if err != nil {
				return d.s, d.said, err
			}
			d.hear(q, session.Answer{Attempt: d.s.Attempt, Frame: q})
			return d.end()
		case wire1.TagReady:
			d.play(session.Sent{Attempt: d.s.Attempt})
			return d.end()
		case wire1.TagWait:
			return d.end()
		}
	}
}
