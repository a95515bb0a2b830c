package sessions

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
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

// standbys are the sessions that wait for their peer. They belong to a Manager, under its
// lock.
type standbys struct {
	n    int       // all of them
	list list.List // of *Conn, the longest first: those whose grace is over
}

// standby is the wait of a connection for its peer.
type standby struct {
	waits bool          // guarded by the lock of sessions
	run   uint32        // counts the waits; likewise
	at    *list.Element // in the list of standbys, nil: not; likewise
	// stop ends the timer. Owner: the goroutine that runs the connection's outbox.
	stop func() bool
}

// beginStandbyLocked has a session that waits from now on end in time. Config.MaxStandby counts it
// once its peer has had the grace to come back.
func (c *Conn) beginStandbyLocked(grace time.Duration) {
	w := &c.standby
	if StandbyAge(c.policy) == 0 || w.waits {
		return
	}
	w.waits = true
	c.m.standbys.n++
	w.run++
	if run := w.run; grace > 0 {
		c.out.PutLocked(func() { c.startStandbyTimer(grace, run) })
		return
	}
	c.countStandbyLocked()
}

// countStandbyLocked has Config.MaxStandby count a session that waits.
func (c *Conn) countStandbyLocked() {
	m, w := c.m, &c.standby
	w.at = m.standbys.list.PushBack(c)
	run := w.run
	c.out.PutLocked(func() { c.startStandbyTimer(StandbyAge(c.policy), run) })
	if most := m.cfg.MaxStandby; most > 0 && m.standbys.list.Len() > most {
		m.mu.LaterLocked(m.expireOldest)
	}
}

func (c *Conn) startStandbyTimer(after time.Duration, run uint32) {
	m, w := c.m, &c.standby
	w.stop = m.cfg.Clock.AfterFunc(after, func() {
		m.lock()
		defer m.unlock()
		switch {
		case !w.waits || w.run != run:
		case c.s.Frozen: // about to be another process's
			c.out.PutLocked(func() { c.startStandbyTimer(after, run) })
		case w.at == nil:
			c.countStandbyLocked()
		default:
			c.s.expireLocked()
		}
	})
}

// endStandbyLocked ends the wait.
func (c *Conn) endStandbyLocked() {
	w := &c.standby
	if !w.waits {
		return
	}
	w.waits = false
	c.m.standbys.n--
	if w.at != nil {
		c.m.standbys.list.Remove(w.at)
		w.at = nil
	}
	c.out.PutLocked(func() { w.stop() })
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

const (
	// firstWarning is when the first line is due. The next one comes after nine times as long as it
	// has dialled, mostBetweenWarnings at most.
	firstWarning        = time.Minute
	mostBetweenWarnings = time.Hour
)

// silence is the time since which a connection dials without an answer. The goroutine that runs
// the connection's outbox owns it.
type silence struct {
	since time.Time
	stop  func() bool // of the timer
}

// dialsLocked follows the state of a connection: whether it dials. One that stands still keeps its
// silence until goOnLocked.
func (c *Conn) dialsLocked(to session.State) {
	switch {
	case to == session.Connecting, to == session.Wait:
		c.out.PutLocked(c.beginSilence)
	case to == session.Ready, to == session.Standby && !c.s.Frozen, to == session.Closing:
		c.out.PutLocked(c.endSilence)
	}
}

func (c *Conn) beginSilence() {
	if c.silence.Load() != nil {
		return // this is the next attempt
	}
	s := &silence{since: c.m.cfg.Clock.Now()}
	c.silence.Store(s)
	c.m.silent.Add(1)
	c.awaitAnswer(s, s.since)
}

func (c *Conn) endSilence() {
	if s := c.silence.Swap(nil); s != nil {
		c.m.silent.Add(-1)
		s.stop()
	}
}

// silentSince is when the connection began to dial; zero: it does not, or is answered.
func (c *Conn) silentSince() (t time.Time) {
	state := c.shown.now.Load().state // the outbox may follow it later (dialsLocked)
	if s := c.silence.Load(); s != nil && state != session.Ready && state != session.Standby && state != session.Closing {
		t = s.since
	}
	return t
}

// awaitAnswer has unanswered called when the next line is due, or the end of the connection.
func (c *Conn) awaitAnswer(s *silence, now time.Time) {
	long := now.Sub(s.since)
	next := max(min(9*long, mostBetweenWarnings), firstWarning)
	if left := c.policy.GiveUpAfter - long; left > 0 {
		next = min(next, left)
	} else if c.policy.GiveUpAfter > 0 {
		next = firstWarning // a hand-over or a peer that comes keeps it, and may fail
	}
	s.stop = c.m.cfg.Clock.AfterFunc(next, func() { c.unanswered(s) })
}

// unanswered says in the log that the peer of a connection does not answer, or ends it.
func (c *Conn) unanswered(s *silence) {
	m, now := c.m, c.m.cfg.Clock.Now()
	m.lock()
	defer m.unlock()
	if state := c.s.State; c.silence.Load() != s || state == session.Ready || state == session.Closing || state == session.Standby && !c.s.Frozen {
		return // it is over, or about to be
	}
	err, peer := c.shown.err, c.s.peerText()
	over := c.policy.GiveUpAfter > 0 && now.Sub(s.since) >= c.policy.GiveUpAfter && !c.s.Frozen && c.s.State != session.Replacing
	if over {
		end := fmt.Errorf("%w: %s since %s", ErrUnanswered, peer, s.since.Format(time.RFC3339))
		if err != nil {
			end = fmt.Errorf("%w, last attempt: %w", end, err)
		}
		m.counters.Expired++
		c.s.closeLocked(true, end)
		err = end
	}
	c.out.PutLocked(func() {
		if !over && c.silence.Load() == s {
			c.awaitAnswer(s, now)
		}
		m.lines.Warn("the peer does not answer", "conn", c.id, "peer", peer, "since", s.since, "given_up", over, "err", err)
	})
}

// endedSessions are the sessions that ended while handshakes were under way. They
// belong to a Manager, under its lock.
type endedSessions struct {
	session.Ended
	aged time.Time // the last time
}

// handshakeEndedLocked forgets the ended sessions about which no handshake can be any more.
func (m *Manager) handshakeEndedLocked(now time.Time) {
	m.halfOpen--
	switch {
	case m.halfOpen+int(m.arriving.Load()) == 0:
		m.ended.Ended = session.Ended{}
	case now.Sub(m.ended.aged) >= m.cfg.Timeout:
		m.ended.Age()
		m.ended.aged = now
	}
}

// A connection dials again after every failure, but for a few refusals that the protocol
// calls final. Dialling again hardly mends some failures: another process is at the
// address, or none that speaks msgr2. After a few of these WaitReady fails with ErrStuck.
// The first failure and the last of these few are logged, by the outbox of the connection
// when the lock is free.

// stuckAfter is the number of attempts that have to fail in this way, one after the other.
// With the default back-off that takes less than a second.
const stuckAfter = 3

// streak counts the attempts of a connection that have failed since it was ready
// last. It is guarded by the lock of sessions.
type streak struct {
	failed int32 // in any way
	stuck  int32 // of these, the last ones that dialling again does not mend

	warning *warning // of the last failure; nil if there is none
}

// warning is a line of the log that waits for the lock of sessions to be free. The next action
// of the step belongs to it, so that a cause is logged once.
type warning struct {
	text string
	of   error
}

// goesOnLocked adds the next action of the session to the warning about err. It returns false
// if there is no such warning.
func (n *streak) goesOnLocked(err error, text string) bool {
	w := n.warning
	if w == nil || w.of != err {
		return false
	}
	w.text = "attempt failed, " + text
	n.warning = nil
	return true
}

// lasts says whether an attempt failed for a reason that lasts as a rule: the peer
// is not the one that was dialled, or does not want us.
func lasts(e *stats.Error) bool {
	switch err := e.Err; {
	case errors.Is(err, wire.ErrBadBanner), errors.Is(err, handshake.ErrAuth), errors.Is(err, session.ErrMissingFeatures), errors.Is(err, session.ErrWrongPeer),
		errors.Is(err, session.ErrOtherAddress), errors.Is(err, handshake1.ErrAddress):
		return true
	case e.Stage != stats.StageIdent:
		return false
	default: // a peer that is dialled by another address hangs up without a frame
		return stats.HungUp(err)
	}
}

// attemptFailedLocked counts a failed attempt of c, if it was ours. It warns of the first
// one, and of the one after which the connection is stuck.
func (n *streak) attemptFailedLocked(c *Conn, err error) {
	var e *stats.Error
	n.warning = nil
	if !c.s.Peer.Dialled || c.s.Once || errors.Is(err, session.ErrWait) || !errors.As(err, &e) {
		return
	}
	n.failed++
	if n.stuck++; !lasts(e) {
		n.stuck = 0
	}
	if n.failed != 1 && n.stuck != stuckAfter {
		return
	}
	w, advice := &warning{text: "attempt failed, dialling again", of: err}, e.Advice()
	if n.stuck == stuckAfter {
		w.text = "attempts fail alike, dialling on"
	}
	n.warning = w
	peer := c.s.peerText()
	c.out.PutLocked(func() {
		about := []any{"conn", c.id, "peer", peer, "err", err}
		if advice != "" {
			about = append(about, "advice", advice)
		}
		c.m.lines.Warn(w.text, about...)
	})
}

// stuckErrorLocked is ErrStuck with last, the error of the last attempt; nil if the
// connection is not stuck.
func (n *streak) stuckErrorLocked(last error) error {
	var e *stats.Error
	if n.stuck < stuckAfter || !errors.As(last, &e) {
		return nil
	}
	if advice := e.Advice(); advice != "" {
		return fmt.Errorf("%w: %w: %s", ErrStuck, last, advice)
	}
	return fmt.Errorf("%w: %w", ErrStuck, last)
}

// A connection that ends with a reset event may have received messages, perhaps
// acknowledged ones, that wait for Queued. They are dispatched first: until then the
// connection lingers, closed to everybody else. So a received message is dispatched,
// unless the user or a shutdown has ended its connection, or a reset event has said that
// it is lost.
//
// Every connection ends here, and then loses its calls and postings; one that lingers has lost them
// by then, as a message that waits for Queued may wait for a call.

// lingering are the closed connections of a messenger with messages that still wait for Queued,
// and the reset event with which each of them ends. The messenger's lock guards them.
type lingering map[*Conn]Reset

// tellResetLocked has the handler of a closed connection say that it is over, at once or
// when it has lingered.
func (l lingering) tellResetLocked(c *Conn, ev Reset) {
	if waits := c.user.Finish(); !waits || c.h.Core().State() != loop.CoreRunning {
		sayResetLocked(c, ev)
		return
	}
	l[c] = ev
	// Its socket is of no use any more.
	c.out.PutLocked(func() { c.h.Delay(false, func(dataplane.Snapshot) { c.user.Lost() }) })
}

// endLocked ends a connection if it still lingers. tell: with its reset event.
func (l lingering) endLocked(c *Conn, tell bool) {
	ev, lingers := l[c]
	if !lingers {
		return
	}
	delete(l, c)
	if tell {
		sayResetLocked(c, ev)
	}
	c.user.Cease()
	endIOLocked(c)
}

// endAllLocked ends the lingering connections on a core, nil: on all, and drops the messages
// that wait for Queued.
func (l lingering) endAllLocked(on *loop.Core, tell bool) {
	for _, c := range slices.SortedFunc(maps.Keys(l), func(a, b *Conn) int { return cmp.Compare(a.id, b.id) }) {
		if on == nil || c.h.Core() == on {
			l.endLocked(c, tell)
		}
	}
}

// sayResetLocked puts the reset event among the events of the handler. No message is dispatched
// after it.
func sayResetLocked(c *Conn, ev Reset) {
	c.user.Cease()
	c.out.PutLocked(func() { c.h.Notify(ev) })
}

// endIOLocked closes the handler.
func endIOLocked(c *Conn) {
	c.out.PutLocked(func() {
		c.h.Close(func() {
			c.user.Closed()
			c.closed.send()
		})
	})
}

// Dispatched ends a connection that lingers: no message waits any more (User.Finish).
func (c *Conn) Dispatched() {
	c.m.lock()
	defer c.m.unlock()
	c.m.lingering.endLocked(c, true)
}
