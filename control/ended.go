package control

import (
	"sync"

	"github.com/ringmsgr/ringmsgr/control/session"
)

// endedSessions are the sessions that ended while handshakes were under way. They
// belong to a messenger, under its lock.
type endedSessions struct {
	session.Ended
	timed bool // the timer that forgets them is running
	timer agingTimer
}

// rememberEnd notes the end of a session, if a handshake under way may be about
// it. The lock is held.
func (m *Messenger) rememberEnd(e session.Remember) {
	if m.down || m.halfOpen+int(m.arriving.Load()) == 0 {
		return
	}
	m.ended.Remember(e.Name, e.PeerGlobalSeq)
	if !m.ended.timed {
		m.ageEndedSessions()
	}
}

// ageEndedSessions has the timer run once per deadline of a handshake, as long as
// something is left. The lock is held.
func (m *Messenger) ageEndedSessions() {
	m.ended.timed = true
	m.mu.later(func() {
		m.ended.timer.start(func() (stop func() bool) {
			return m.cfg.Clock.AfterFunc(m.cfg.HandshakeTimeout, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.ended.timed = false
				if m.ended.Age() && !m.down {
					m.ageEndedSessions()
				}
			})
		})
	})
}

// agingTimer is a timer that is started and ended without the messenger's lock, as
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
