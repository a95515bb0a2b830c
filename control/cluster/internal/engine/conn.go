package engine

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Types of messages that are not of package osdop.
const (
	typePing   = 2
	typeOSDMap = 41
)

// link is one connection of a session. Owner: Engine.mu.
type link struct {
	session *machine.Session
	conn    *control.Conn
	ready   bool          // it was
	feature wire.Features // once it is ready
}

// attempt is the message of one attempt of an operation. It goes back to the pool when the messenger lets go of it.
type attempt struct {
	control.Message
	e *Engine
}

func newAttempt(e *Engine) *attempt {
	a := &attempt{e: e}
	a.Context = a
	a.Free = func(m *control.Message) {
		a := m.Context.(*attempt)
		a.Data = nil
		a.e.attempts.Put(a)
	}
	return a
}

// dialLocked connects to the OSD of a session.
func (e *Engine) dialLocked(s *machine.Session) {
	conn, err := e.messenger.Connect(s.Addr, wire.OSD)
	if err != nil {
		e.m.Lost(s, err)
		return
	}
	l := &link{session: s, conn: conn}
	s.User, e.links[conn] = l, l
	if conn.State() == control.StateReady { // somebody else has made it
		e.readyLocked(l)
	}
}

func (e *Engine) readyLocked(l *link) {
	l.ready, l.feature = true, l.conn.Info().Features
	e.m.Up(l.session)
}

func (e *Engine) hangUpLocked(s *machine.Session) {
	if l, _ := s.User.(*link); l != nil {
		delete(e.links, l.conn)
		s.User = nil
		e.doomed = append(e.doomed, l.conn)
	}
}

// whyDown is why a session is not up.
func (e *Engine) whyDown(s *machine.Session) error {
	if l, _ := s.User.(*link); l != nil {
		if err := l.conn.Err(); err != nil {
			return err
		}
	}
	return s.Err()
}

// sendLocked sends an operation on its session.
func (e *Engine) sendLocked(o *machine.Op) {
	l, _ := o.Session().User.(*link)
	if l == nil || !o.Active() {
		return // the session is over: another action says so
	}
	var r osdop.Request
	c, _ := o.User.(*Call)
	if c != nil {
		r = c.Request
	} else {
		r = o.User.(*Watch).requestLocked(o)
	}
	env := e.m.Envelope(o)
	r.Flags = env.Flags & (osdop.FlagRead | osdop.FlagWrite) // the others are in the envelope alone
	env.Features = l.feature
	a := e.attempts.Get().(*attempt)
	front, data, err := r.Append(a.Front[:0], &env)
	if err != nil {
		a.e.attempts.Put(a)
		e.m.Fail(o, err)
		return
	}
	if c != nil && o.Attempt() == 0 && len(c.Into) >= postFrom {
		c.posting.TID, c.posting.Buffer, c.posting.Done, c.posting.Context = o.TID(), c.Into, e.unpost, c
		if l.conn.PostBuffer(&c.posting) == nil {
			c.posted = l
		}
	}
	a.Type, a.TID, a.Priority, a.Version, a.CompatVersion = osdop.TypeOp, o.TID(), osdop.PriorityOp, osdop.Version(l.feature), osdop.CompatOp
	a.Front, a.Data = front, data
	if err := l.conn.Send(&a.Message); err != nil {
		a.Data = nil
		a.e.attempts.Put(a)
		switch {
		case errors.Is(err, control.ErrQueueFull):
			e.stallLocked(l, o)
		case errors.Is(err, control.ErrClosed):
			e.lostLocked(l)
		default:
			e.m.Fail(o, err)
		}
	}
}

// stallLocked has the operations of a session wait until the queue of its connection has room.
func (e *Engine) stallLocked(l *link, o *machine.Op) {
	room := l.conn.Room()
	e.m.Stalled(o)
	e.running.Add(1)
	go func() {
		defer e.running.Done()
		select {
		case <-room:
		case <-e.closed:
			return
		}
		e.mu.Lock()
		if e.links[l.conn] == l {
			e.m.Room(l.session)
		}
		e.unlock()
	}()
}

// tellLocked sends what is no operation.
func (e *Engine) tellLocked(a *machine.Action) {
	l, _ := a.Session.User.(*link)
	if l == nil {
		return
	}
	m := control.NewMessage(typePing, nil, nil)
	if a.What == machine.Ack {
		m = control.NewMessage(osdop.TypeBackoff, a.Backoff.AppendTo(nil), nil)
		m.Version, m.CompatVersion, m.Priority = 1, 1, osdop.PriorityOp
	}
	_ = l.conn.Send(m) // a connection that is over has a Reset
}

// Dispatcher takes the messages of OSDs, and the maps that the client of the monitors leaves to it.
func (e *Engine) Dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		ByType: map[uint16]func(*control.Conn, *control.Message){
			typeOSDMap:            func(_ *control.Conn, m *control.Message) { e.takeMaps(m) },
			osdop.TypeOpReply:     e.reply,
			osdop.TypeBackoff:     e.backoff,
			osdop.TypeWatchNotify: e.watchEvent,
		},
		Connect: func(c *control.Conn, _ int) {
			e.mu.Lock()
			if l := e.links[c]; l != nil && !l.ready {
				e.readyLocked(l)
			}
			e.unlock()
		},
		Reset: func(c *control.Conn, _ bool) {
			e.mu.Lock()
			if l := e.links[c]; l != nil {
				e.lostLocked(l)
			}
			e.unlock()
		},
	}
}

// findLostLocked looks for connections that are over without a Reset, as somebody has marked them down.
func (e *Engine) findLostLocked() {
	for conn, l := range e.links {
		if conn.State() == control.StateClosing {
			e.lostLocked(l)
		}
	}
}

// lostLocked is told that a connection is over.
func (e *Engine) lostLocked(l *link) {
	delete(e.links, l.conn)
	l.session.User = nil
	err := l.conn.Err()
	if !l.ready && errors.Is(err, control.ErrAuth) {
		e.m.Refused(l.session, fmt.Errorf("osd.%d at %v lets us not in: %w", l.session.OSD, l.session.Addr, err))
		return
	}
	e.m.Lost(l.session, err)
}

// reply takes the answer to an operation, on the core of its connection.
func (e *Engine) reply(conn *control.Conn, msg *control.Message) {
	e.mu.Lock()
	l := e.links[conn]
	if l == nil {
		e.mu.Unlock()
		return
	}
	o := e.m.Find(l.session, msg.TID)
	if o == nil {
		e.mu.Unlock()
		return
	}
	c, ok := o.User.(*Call)
	if !ok {
		o.User.(*Watch).answeredLocked(o, msg)
		e.unlock()
		return
	}
	if err := osdop.DecodeReply(msg.Front, msg.Data, &c.Reply, c.Request.Ops); err != nil {
		clearOutputs(c.Request.Ops)
		c.Err = e.errorLocked(c, fmt.Errorf("%w: %w", ErrMessage, err), false)
		e.m.Cancel(o)
		e.endLocked(c)
		e.unlock()
		return
	}
	e.current, e.answers = msg, c
	e.m.Reply(o, &c.Reply)
	e.actAllLocked()
	e.current, e.answers = nil, nil
	switch {
	case c.state == running: // it goes on, or this was no answer to it
		clearOutputs(c.Request.Ops)
	case c.message != nil && c.posted != nil:
		msg.Retain()
		c.kept = true
	}
	e.unlock()
}

// backoff takes what an OSD says about objects that it does not want now.
func (e *Engine) backoff(conn *control.Conn, msg *control.Message) {
	b, err := osdop.DecodeBackoff(msg.Front)
	e.mu.Lock()
	defer e.unlock()
	l := e.links[conn]
	if l == nil {
		return
	}
	if err == nil {
		err = e.m.Backoff(l.session, &b)
	}
	if err != nil {
		e.cfg.Logger.Warn("backoff", "osd", l.session.OSD, "err", err)
		e.hangUpLocked(l.session)
		e.m.Lost(l.session, err)
	}
}
