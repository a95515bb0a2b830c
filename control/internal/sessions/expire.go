package sessions

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/unanswered"
)

// A session without a socket that waits for its peer (standby) costs memory, and the peer may
// be gone for good. It ends with a reset event when it has waited for its policy's
// StandbyAge, or when Config.MaxStandby others have begun to wait since. A peer that comes
// back later gets SESSION_RESET, so that no message is lost without an event on both sides.

// DefaultStandbyAge is the default of Policy.StandbyAge for a server's policy.
const DefaultStandbyAge = time.Hour

// StandbyAge bounds the wait of a session of policy p for its peer; 0: for ever.
func StandbyAge(p *Policy) time.Duration {
	switch {
	case p.StandbyAge > 0:
		return p.StandbyAge
	case p.StandbyAge == 0 && p.Server && !p.Lossy:
		return DefaultStandbyAge
	}
	return 0
}

// standbys are the sessions that wait for their peer, the longest first. They belong to
// a Manager, under its lock.
type standbys struct{ list list.List } // of *Conn

// standby is the wait of a connection for its peer.
type standby struct {
	run uint64        // counts the waits; guarded by the lock of sessions
	at  *list.Element // in standbys, nil: not; likewise
	// stop ends the timer. Owner: the goroutine that runs the connection's outbox.
	stop func() bool
}

// beginStandbyLocked has a session that waits from now on end in time.
func (c *Conn) beginStandbyLocked() {
	m, w, age := c.m, &c.standby, StandbyAge(c.policy)
	if age == 0 || w.at != nil {
		return
	}
	w.run++
	w.at = m.standbys.list.PushBack(c)
	run := w.run
	c.out.PutLocked(func() { c.startStandbyTimer(age, run) })
	if most := m.cfg.MaxStandby; most > 0 && m.standbys.list.Len() > most {
		m.mu.LaterLocked(m.expireOldest)
	}
}

func (c *Conn) startStandbyTimer(age time.Duration, run uint64) {
	m, w := c.m, &c.standby
	w.stop = m.cfg.Clock.AfterFunc(age, func() {
		m.lock()
		defer m.unlock()
		switch {
		case w.at == nil || w.run != run:
		case c.s.Frozen: // about to be another process's
			c.out.PutLocked(func() { c.startStandbyTimer(age, run) })
		default:
			c.s.expireLocked()
		}
	})
}

// endStandbyLocked ends the wait.
func (c *Conn) endStandbyLocked() {
	w := &c.standby
	if w.at == nil {
		return
	}
	c.m.standbys.list.Remove(w.at)
	w.at = nil
	c.out.PutLocked(func() {
		if w.stop != nil {
			w.stop()
			w.stop = nil
		}
	})
}

// expireOldest keeps the bound on the number of sessions that wait.
func (m *Manager) expireOldest() {
	m.lock()
	defer m.unlock()
	for at := m.standbys.list.Front(); at != nil && m.standbys.list.Len() > m.cfg.MaxStandby; {
		c := at.Value.(*Conn)
		at = at.Next()
		if !c.s.Frozen {
			c.s.expireLocked()
		}
	}
}

// A connection that dials and gets no answer says since when (Info, Stats), and a line in the
// log says so from time to time. It goes on for ever, unless its policy has a GiveUpAfter.

type (
	silentWatch = unanswered.Watch[*Conn]
	silentEntry = unanswered.Entry[*Conn]
)

// dialsLocked follows the state of a connection: whether it dials.
func (c *Conn) dialsLocked(to session.State) {
	switch to {
	case session.Connecting, session.Wait:
		c.out.PutLocked(func() { c.m.silent.Begin(&c.silent, c, max(c.policy.GiveUpAfter, 0)) })
	case session.Ready, session.Standby, session.Closing:
		c.out.PutLocked(func() { c.m.silent.End(&c.silent) })
	}
}

// unanswered says in the log that the peer of a connection does not answer, or ends it.
func (m *Manager) unanswered(d unanswered.Due[*Conn]) {
	c := d.Conn
	m.lock()
	err, peer, dials := c.shown.err, c.s.peerText(), c.s.State == session.Connecting || c.s.State == session.Wait
	if dials && d.Over && !c.s.Frozen && c.silent.Since().Equal(d.Since) {
		end := fmt.Errorf("%w: %s since %s", ErrUnanswered, peer, d.Since.Format(time.RFC3339))
		if err != nil {
			end = fmt.Errorf("%w, last attempt: %w", end, err)
		}
		m.counters.Expired++
		c.s.closeLocked(true, end)
		err = end
	}
	m.unlock()
	if dials {
		m.lines.Warn("the peer does not answer", "conn", c.id, "peer", peer, "since", d.Since, "given up", d.Over, "err", err)
	}
}

// endedSessions are the sessions that ended while handshakes were under way. They
// belong to a messenger, under its lock.
type endedSessions struct {
	session.Ended
	timed bool // the timer that forgets them is running
	timer agingTimer
}

// rememberEndLocked notes the end of a session, if a handshake under way may be about it.
func (m *Manager) rememberEndLocked(e session.Remember) {
	if m.down || m.halfOpen+int(m.arriving.Load()) == 0 {
		return
	}
	m.ended.Remember(e.Name, e.PeerGlobalSeq)
	if !m.ended.timed {
		m.ageEndedSessionsLocked()
	}
}

// ageEndedSessionsLocked has the timer run once per deadline of a handshake, while entries are
// left.
func (m *Manager) ageEndedSessionsLocked() {
	m.ended.timed = true
	m.mu.LaterLocked(func() {
		m.ended.timer.start(func() (stop func() bool) {
			return m.cfg.Clock.AfterFunc(m.cfg.Timeout, func() {
				m.lock()
				defer m.unlock()
				m.ended.timed = false
				if m.ended.Age() && !m.down {
					m.ageEndedSessionsLocked()
				}
			})
		})
	})
}

// agingTimer is a timer that is started and ended without the lock of sessions, as
// the clock is the user's.
type agingTimer struct {
	mu   sync.Mutex
	stop func() bool // of the last run; guarded by mu
	over bool        // guarded by mu
}

// start starts one more run, unless the timer has ended.
func (t *agingTimer) start(run func() (stop func() bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.stop = run()
	}
}

// end ends the timer for good.
func (t *agingTimer) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.stop != nil {
		t.stop()
	}
}
