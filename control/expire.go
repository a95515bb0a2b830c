package control

import (
	"container/list"
	"errors"
	"time"
)

// A session without a socket that waits for its peer (standby) costs memory, and the
// peer may be gone for good. It ends with a reset event when it has waited for its
// policy's StandbyAge, or when Config.MaxStandby others have begun to wait since. A
// peer that comes back after that is told that its session is gone (SESSION_RESET),
// so that nothing is lost without an event on both sides.
//
// runner.go says when a session begins and ends to wait, and has the end of the connection:
// that is the one call that runs back up, through standbys.expire, which New sets.

// ErrExpired is why a connection is over whose peer did not come back in time.
var ErrExpired = errors.New("control: the peer did not come back")

// Defaults of the bounds on sessions that wait for their peer.
const (
	DefaultStandbyAge = time.Hour
	DefaultMaxStandby = 16384
)

// standbyAge is how long a session may wait for its peer; 0: for ever.
func (p *Policy) standbyAge() time.Duration {
	switch {
	case p.StandbyAge > 0:
		return p.StandbyAge
	case p.StandbyAge == 0 && p.Server && !p.Lossy:
		return DefaultStandbyAge
	}
	return 0
}

// standbys are the sessions that wait for their peer, the longest first. They belong to
// a messenger, under its lock.
type standbys struct {
	list   list.List // of *Conn
	most   int       // 0: any number
	clock  Clock
	lock   *protocolLock
	expire func(*Conn) // ends a connection whose peer has not come back
}

// standby is the wait of a connection for its peer.
type standby struct {
	run uint64        // counts the waits; guarded by the messenger's lock
	at  *list.Element // in standbys, nil: not; likewise
	// stop ends the timer. Owner: who runs the connection's outbox.
	stop func() bool
}

// begin has a session that waits from now on end in time. The lock is held.
func (s *standbys) begin(c *Conn) {
	w, age := &c.standby, c.policy.standbyAge()
	if age == 0 || w.at != nil {
		return
	}
	w.run++
	w.at = s.list.PushBack(c)
	run := w.run
	c.out.put(func() { s.startTimer(c, age, run) })
	if s.most > 0 && s.list.Len() > s.most {
		s.lock.later(s.endOldest)
	}
}

func (s *standbys) startTimer(c *Conn, age time.Duration, run uint64) {
	w := &c.standby
	w.stop = s.clock.AfterFunc(age, func() {
		s.lock.Lock()
		defer s.lock.Unlock()
		switch {
		case w.at == nil || w.run != run:
		case c.s.Frozen: // about to be another process's
			c.out.put(func() { s.startTimer(c, age, run) })
		default:
			s.expire(c)
		}
	})
}

// end ends the wait. The lock is held.
func (s *standbys) end(c *Conn) {
	w := &c.standby
	if w.at == nil {
		return
	}
	s.list.Remove(w.at)
	w.at = nil
	c.out.put(func() {
		if w.stop != nil {
			w.stop()
			w.stop = nil
		}
	})
}

// endOldest keeps the bound on the number of those that wait.
func (s *standbys) endOldest() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for at := s.list.Front(); at != nil && s.list.Len() > s.most; {
		c := at.Value.(*Conn)
		at = at.Next()
		if !c.s.Frozen {
			s.expire(c)
		}
	}
}
