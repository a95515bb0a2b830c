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

// standby is the wait of a connection for its peer.
type standby struct {
	run uint64        // counts the waits; guarded by the messenger's lock
	at  *list.Element // in Messenger.standbys, nil: not; likewise
	// stop ends the timer. Owner: who runs the connection's outbox.
	stop func() bool
}

// beginStandby has a session that waits from now on end in time. The lock is held.
func (c *Conn) beginStandby() {
	m, w := c.m, &c.standby
	age := c.policy.standbyAge()
	if age == 0 || w.at != nil {
		return
	}
	w.run++
	w.at = m.standbys.PushBack(c)
	run := w.run
	c.out.put(func() { c.startStandbyTimer(age, run) })
	if most := m.cfg.MaxStandby; most > 0 && m.standbys.Len() > most {
		m.mu.later(m.endOldestStandby)
	}
}

func (c *Conn) startStandbyTimer(age time.Duration, run uint64) {
	c.standby.stop = c.m.cfg.Clock.AfterFunc(age, func() {
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		switch {
		case c.standby.at == nil || c.standby.run != run:
		case c.s.Frozen: // about to be another process's
			c.out.put(func() { c.startStandbyTimer(age, run) })
		default:
			c.expire()
		}
	})
}

// endStandby ends the wait. The lock is held.
func (c *Conn) endStandby() {
	w := &c.standby
	if w.at == nil {
		return
	}
	c.m.standbys.Remove(w.at)
	w.at = nil
	c.out.put(func() {
		if w.stop != nil {
			w.stop()
			w.stop = nil
		}
	})
}

// expire ends a connection whose peer has not come back. The lock is held.
func (c *Conn) expire() {
	c.m.counters.Expired++
	c.s.close(true, ErrExpired)
}

// endOldestStandby keeps the bound on the number of those that wait.
func (m *Messenger) endOldestStandby() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := m.standbys.Front(); at != nil && m.standbys.Len() > m.cfg.MaxStandby; {
		c := at.Value.(*Conn)
		at = at.Next()
		if !c.s.Frozen {
			c.expire()
		}
	}
}

// lastSeen is when the peer was heard last, as far as it is known; quiet is how long
// that is ago on the present socket. The lock is held.
func (r *runner) lastSeen(now time.Time, quiet time.Duration) time.Time {
	if r.State == StateReady {
		return now.Add(-quiet)
	}
	return r.seen
}
