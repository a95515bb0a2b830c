package sessions

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

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
