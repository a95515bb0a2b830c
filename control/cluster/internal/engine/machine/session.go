package machine

import (
	"cmp"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Session is the way to an OSD at one address. It outlives connections.
type Session struct {
	OSD  int32
	Addr wire.Addr
	Err  error // why it is not up; nil: nothing is known against it
	Full bool  // the queue of the connection is, as of the last Stalled

	state    state
	backoffs []osdop.Backoff
	since    time.Time // when it came up
	failed   int       // how often it was refused, in a row
}

type state uint8

const (
	dialing state = iota
	up
	resting // it is dialled at the next tick
	closed
)

// Bounds of the demands of an OSD on a session.
const (
	maxBackoffs  = 4096            // at the same time
	maxBounced   = 16              // redirects of one operation; refusals of a session
	restlessness = 2 * time.Second // a session that was up for less is not dialled at once
)

// close ends the session, as its OSD is down or elsewhere. Its operations go where the map says.
func (m *Machine) close() {
	s := m.session
	m.session, s.state, s.backoffs = nil, closed, nil
	m.do(Action{What: HangUp, Session: s})
	m.unsend(s)
}

// unsend has all operations of a session sent again.
func (m *Machine) unsend(s *Session) {
	for o := m.ops.first; o != nil; o = o.next {
		if o.Session == s {
			o.sent = false
		}
	}
}

// Up says that the connection of a session is ready.
func (m *Machine) Up(s *Session) {
	if s.state == closed {
		return
	}
	s.state, s.since, s.Err, s.Full, s.failed = up, m.now, nil, false, 0
	m.flush()
}

// Lost says that the connection of a session is gone. It is dialled again at once, unless that happens
// often.
func (m *Machine) Lost(s *Session, err error) {
	if s.state == closed {
		return
	}
	brief := s.state != up || m.now.Sub(s.since) < restlessness
	s.state, s.backoffs, s.Err, s.Full, m.stale = resting, nil, err, false, true
	m.unsend(s)
	m.disturb(s)
	if !brief {
		m.redial(s)
	}
	m.flush()
}

func (m *Machine) redial(s *Session) {
	s.state = dialing
	m.do(Action{What: Dial, Session: s})
}

// Refused says that the OSD refuses the connection, and why. It is tried again at the next ticks; in the end
// its operations fail.
func (m *Machine) Refused(s *Session, err error) {
	m.Lost(s, err)
	if s.failed++; s.failed < maxBounced/2 || s.state == closed {
		return
	}
	m.each(func(o *Op) {
		if o.Session == s {
			m.Fail(o, err)
		}
	})
	m.flush()
}

// Stalled says that Op is not sent, as the queue of the connection is full. All operations behind it wait, too, until Room: also those
// whose Send was under way.
func (m *Machine) Stalled(o *Op) {
	o.Session.Full, o.sent = true, false
	o.Attempt--
	m.try(o)
}

// Room says that the queue of a session's connection has room again.
func (m *Machine) Room(s *Session) {
	s.Full = false
	m.flush()
}

// Find returns the operation that an answer on a session is for; nil: no operation waits for it.
func (m *Machine) Find(s *Session, tid uint64) *Op {
	if o := m.byTID[tid]; o != nil && o.Session == s && o.Attempt >= 0 {
		return o
	}
	return nil
}

// Reply takes an answer to an operation that Find has found. The operation is over by the action that
// follows, or goes on.
func (m *Machine) Reply(o *Op, r *osdop.Reply) {
	switch {
	case r.Attempt >= 0 && r.Attempt != o.Attempt:
		return // to an earlier attempt
	case r.Redirect != nil && o.bounced >= maxBounced:
		m.Fail(o, syscall.ELOOP)
	case r.Redirect != nil:
		name := cmp.Or(r.Redirect.Name, o.target.Name)
		o.target = *r.Redirect
		o.target.Name = name
		o.flags |= osdop.Redirected | osdop.IgnoreCache | osdop.IgnoreOverlay
		m.resubmit(o)
	case r.Result == -int32(syscall.EAGAIN):
		o.flags &^= osdop.AnyReplica
		m.resubmit(o)
	case r.Result < 0:
		m.Fail(o, syscall.Errno(-r.Result))
	default:
		m.Fail(o, nil)
	}
}

// resubmit sends an operation again, as another one.
func (m *Machine) resubmit(o *Op) {
	o.bounced++
	o.again = o.bounced > maxBounced/4
	m.remove(o) // it goes behind those that waited behind it
	o.Active = true
	o.Attempt, o.sent, o.at, o.Session, o.check, o.checking = -1, false, nowhere, nil, 0, false
	m.enter(o)
	if m.aim(o, locate(m.cur, o)) {
		m.try(o)
	}
}

// Times of Tick.
const (
	PollEvery = 5 * time.Second
	laggy     = 10 * time.Second // an operation that waits for so long
)

// Tick says what time it is. It comes about once a second.
func (m *Machine) Tick(now time.Time) {
	m.now = now
	if s := m.session; s != nil && s.state == resting {
		m.redial(s)
	}
	for o := m.ops.first; o != nil; o = o.next {
		o.again = false
	}
	if len(m.held) > 0 {
		m.flush()
	}
	m.pingWatches()
	if now.Sub(m.poll) < PollEvery {
		return
	}
	m.poll = now
	// The connection is checked if somebody waits on it for long, and a newer map is asked for.
	ask, doubted := m.stale || len(m.watches) > 0, len(m.watches) > 0
	for o := m.ops.first; o != nil; o = o.next {
		late := m.now.Sub(o.Since) >= laggy
		ask, doubted = ask || late || !o.sent, doubted || late
	}
	if doubted && m.session != nil && m.session.state == up {
		m.do(Action{What: Ping, Session: m.session})
	}
	if m.stale = false; ask {
		next := m.Epoch()
		if m.cur != nil {
			next++
		}
		m.do(Action{What: Ask, Epoch: next})
	}
}
