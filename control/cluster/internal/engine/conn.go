package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Types of messages that are not of package osdop.
const (
	typePing   = 2
	typeOSDMap = 41
)

// link is one connection of a session. Owner: the lock of its shard.
type link struct {
	shard   *shard
	session *machine.Session
	conn    *control.Conn
	ready   bool          // it was
	feature wire.Features // once it is ready
}

// attempt is the message of one attempt of an operation. It goes back to the pool when the messenger lets go
// of it.
type attempt struct {
	control.Message
	e    *Engine
	call atomic.Pointer[Call] // whose data it has; nil: it has none, or the call is over
}

func newAttempt(e *Engine) *attempt {
	a := &attempt{e: e}
	a.Context = a
	a.Free = func(m *control.Message) {
		a := m.Context.(*attempt)
		a.Data = nil
		c := a.call.Swap(nil)
		a.e.attempts.Put(a)
		if c != nil {
			c.let()
		}
	}
	return a
}

// hold has a call with data wait until a connection does not read it any more.
func (a *attempt) hold(c *Call, conn *control.Conn) {
	c.standing = slices.DeleteFunc(c.standing, func(s standing) bool { return s.attempt.call.Load() != c })
	c.standing = append(c.standing, standing{a, conn})
	c.holds.Add(1)
	a.call.Store(c)
}

// unsent takes back an attempt that the messenger has not taken.
func (a *attempt) unsent() {
	a.Data = nil
	if c := a.call.Swap(nil); c != nil {
		c.holds.Add(-1)
	}
	a.e.attempts.Put(a)
}

// errShared keeps an OSD from being served.
var errShared = errors.New("another OSD has this address in the osdmap")

// dialLocked connects to the OSD of a session.
func (s *shard) dialLocked(session *machine.Session) {
	conn, err := s.e.messenger.Connect(session.Addr, wire.OSD)
	l := &link{shard: s, session: session, conn: conn}
	if err == nil {
		if _, shared := s.e.links.LoadOrStore(conn, l); shared {
			err = errShared // its answers are for that OSD
		}
	}
	if err != nil {
		s.m.Lost(session, err)
		return
	}
	s.link = l
	s.lookLocked() // another user of the messenger may have made it
}

func (s *shard) readyLocked() {
	s.link.ready, s.link.feature = true, s.link.conn.Info().Features
	s.conn.Store(s.link.conn)
	s.m.Up(s.link.session)
}

// lookLocked asks the connection for a state of which no event has told: it is over without a Reset, as
// somebody has marked it down; or it is ready, and its Connect came before dialLocked had noted it, and
// before it showed that state.
func (s *shard) lookLocked() {
	switch s.link.conn.State() {
	case control.StateClosing:
		s.lostLocked(s.link)
	case control.StateReady:
		if !s.link.ready {
			s.readyLocked()
		}
	}
}

// hangUpLocked closes the connection. A Connect that follows at once makes another one.
func (s *shard) hangUpLocked() {
	if l := s.link; l != nil {
		s.unlinkLocked()
		l.conn.MarkDown()
	}
}

// hangUp closes a connection, unless it is closed, and has its operations sent again.
func (e *Engine) hangUp(conn *control.Conn, err error) {
	if l := e.lock(conn); l != nil {
		l.shard.dropLocked(l, err)
		l.shard.unlock()
	}
}

func (s *shard) dropLocked(l *link, err error) {
	s.hangUpLocked()
	s.m.Lost(l.session, err)
}

func (s *shard) unlinkLocked() {
	s.e.links.CompareAndDelete(s.link.conn, s.link)
	s.conn.Store(nil)
	s.link = nil
}

// sendLocked sends an operation on its session.
func (s *shard) sendLocked(o *machine.Op) {
	l, e := s.link, s.e
	if l == nil || !o.Active || l.session != o.Session {
		return // the session is over: another action says so
	}
	if l.session.Full {
		s.m.Stalled(o) // a small one would pass a large one
		return
	}
	var r osdop.Request
	c, _ := o.User.(*Call)
	if c != nil {
		r = c.Request
	} else {
		r = o.User.(*Watch).requestLocked(o)
	}
	env := s.m.Envelope(o)
	env.Features = l.feature
	a := e.attempts.Get().(*attempt)
	front, data, err := r.Append(a.Front[:0], &env)
	if err != nil {
		e.attempts.Put(a)
		s.m.Fail(o, err)
		return
	}
	if c != nil && !c.posted && o.Attempt == 0 && len(c.Into) >= postFrom {
		c.posting.TID, c.posting.Buffer, c.posting.Done, c.posting.Context = o.TID, c.Into, e.unpost, c
		c.holds.Add(1)
		if c.posted = l.conn.PostBuffer(&c.posting) == nil; !c.posted {
			c.holds.Add(-1)
		}
	}
	a.Type, a.TID, a.Priority, a.Front, a.Data = osdop.TypeOp, o.TID, osdop.PriorityOp, front, data
	a.Version, a.CompatVersion = osdop.Version(l.feature), osdop.CompatOp
	if c != nil && len(data) > 0 {
		a.hold(c, l.conn)
	}
	var room <-chan struct{}
	if err = l.conn.Send(&a.Message); errors.Is(err, control.ErrQueueFull) {
		room = l.conn.Room() // first, as the queue may be empty by now
		err = l.conn.Send(&a.Message)
	}
	if err != nil {
		a.unsent()
		switch {
		case errors.Is(err, control.ErrQueueFull):
			s.stallLocked(l, o, room)
		case errors.Is(err, control.ErrClosed):
			s.lostLocked(l)
		default:
			s.m.Fail(o, err)
		}
	}
}

// stallLocked has the operations of a session wait until the queue of its connection has room.
func (s *shard) stallLocked(l *link, o *machine.Op, room <-chan struct{}) {
	s.m.Stalled(o)
	s.e.running.Go(func() {
		select {
		case <-room:
		case <-s.e.ctx.Done():
			return
		}
		s.mu.Lock()
		if s.link == l {
			s.m.Room(l.session)
		}
		s.unlock()
	})
}

// sendOtherLocked sends a ping, or the answer to a back-off.
func (s *shard) sendOtherLocked(a *machine.Action) {
	l := s.link
	if l == nil || l.session != a.Session {
		return
	}
	m := control.NewMessage(typePing, nil, nil)
	if a.What == machine.Ack {
		m = control.NewMessage(osdop.TypeBackoff, a.Backoff.AppendTo(nil), nil)
		m.Version, m.CompatVersion, m.Priority = 1, 1, osdop.PriorityOp
	}
	// A connection that is over has a Reset, and a ping may be missing. Without the answer to a back-off an OSD
	// would hold the objects back for ever.
	if err := l.conn.Send(m); errors.Is(err, control.ErrQueueFull) && a.What == machine.Ack {
		s.dropLocked(l, err)
	}
}

// Dispatcher takes the messages of OSDs, and the maps that the client of the monitors leaves to it.
func (e *Engine) Dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		ByType: map[uint16]func(*control.Conn, *control.Message){
			typeOSDMap: func(c *control.Conn, m *control.Message) {
				if !c.Info().Accepted { // no OSD, and no monitor, comes to a client
					e.takeMaps(m)
				}
			},
			osdop.TypeOpReply:     e.reply,
			osdop.TypeBackoff:     e.backoff,
			osdop.TypeWatchNotify: e.watchEvent,
		},
		Connect: func(c *control.Conn, _ int) {
			if l := e.lock(c); l != nil {
				if !l.ready {
					l.shard.readyLocked()
				}
				l.shard.unlock()
			}
		},
		Reset: func(c *control.Conn, _ bool) {
			if l := e.lock(c); l != nil {
				l.shard.lostLocked(l)
				l.shard.unlock()
			}
		},
	}
}

// lock locks the shard of a connection. Without one it returns nil.
func (e *Engine) lock(conn *control.Conn) *link {
	v, ok := e.links.Load(conn)
	if !ok {
		return nil
	}
	l := v.(*link)
	l.shard.mu.Lock()
	if l.shard.link != l {
		l.shard.mu.Unlock()
		return nil
	}
	return l
}

// lostLocked is told that a connection is over.
func (s *shard) lostLocked(l *link) {
	s.unlinkLocked()
	err := l.conn.Err()
	if !l.ready && errors.Is(err, control.ErrAuth) && !errors.Is(err, cephx.ErrNoTicket) { // a monitor renews tickets
		s.m.Refused(l.session, fmt.Errorf("osd.%d at %v refuses us: %w", l.session.OSD, l.session.Addr, err))
		return
	}
	s.m.Lost(l.session, err)
}

// reply takes the answer to an operation, on the core of its connection.
func (e *Engine) reply(conn *control.Conn, msg *control.Message) {
	l := e.lock(conn)
	if l == nil {
		return
	}
	s := l.shard
	o := s.m.Find(l.session, msg.TID)
	if o == nil {
		s.mu.Unlock()
		return
	}
	defer s.unlock()
	c, ok := o.User.(*Call)
	if !ok {
		o.User.(*Watch).answeredLocked(s, o, msg)
		return
	}
	if err := osdop.DecodeReply(msg.Front, msg.Data, &c.Reply, c.Request.Ops); err != nil {
		c.forget()
		s.cancelLocked(c, fmt.Errorf("%w: %w", ErrMessage, err))
		return
	}
	s.current, s.answers, c.answered = msg, c, conn
	s.m.Reply(o, &c.Reply)
	s.actAllLocked()
	s.current, s.answers = nil, nil
	switch {
	case c.running: // the operation goes on, or the answer was to an earlier attempt
		c.answered = nil
		c.forget()
	case c.message != nil && (c.posted || slices.ContainsFunc(c.standing, func(s standing) bool { return s.conn != conn })):
		msg.Retain()
		c.kept = true
	}
}

// backoff takes MOSDBackoff, by which an OSD refuses and admits ranges of objects.
func (e *Engine) backoff(conn *control.Conn, msg *control.Message) {
	b, err := osdop.DecodeBackoff(msg.Front)
	l := e.lock(conn)
	if l == nil {
		return
	}
	s := l.shard
	defer s.unlock()
	if err == nil {
		err = s.m.Backoff(l.session, &b)
	}
	if err != nil {
		e.cfg.Logger.Warn("backoff", "osd", l.session.OSD, "err", err)
		s.dropLocked(l, err)
	}
}
