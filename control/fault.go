package control

import (
	"errors"
	"log/slog"
	"time"

	"github.com/ringmsgr/ringmsgr/control/handshake"
)

// levelState is the log level of state changes.
const levelState = slog.LevelDebug

// fault applies the fault rule (msgr2.md 9.8) to a connection whose attempt or
// session in state from failed. If the state has changed since, somebody else
// has already moved on, and nothing happens. The lock is held.
func (c *Conn) fault(from State, err error) {
	if c.state != from {
		return
	}
	defer func() { c.leaveCore(c.h.Core()) }()
	c.err = err
	c.counters.Faults++
	countAuthFailure(&c.counters.AuthFailures, err)
	log := c.m.cfg.Logger
	switch {
	case terminal(err):
		log.Info("connection refused for good", "conn", c.id, "peer", c.peerText(), "err", err)
		c.close(true, err)
	case from == StateConnecting && c.once:
		c.close(true, err)
	case c.policy.Lossy && from != StateConnecting:
		log.Info("lossy connection ended", "conn", c.id, "peer", c.peerText(), "err", err)
		c.close(true, err)
	case from == StateConnecting && errors.Is(err, ErrWait):
		// Even with nothing to send: the peer's own attempt may have died.
		c.wait(c.nextBackoff(err))
	case c.policy.Server, c.policy.Standby && !c.hasWork() && c.m.dialable():
		log.Info("session in standby", "conn", c.id, "peer", c.peerText(), "err", err)
		if c.move(evStandby) {
			c.h.Delay(!c.policy.Server, nil)
		}
	case from == StateConnecting || from == StateReplacing:
		c.wait(c.nextBackoff(err))
	default:
		log.Info("session lost, dialling", "conn", c.id, "peer", c.peerText(), "err", err)
		c.connect(evRedial)
	}
}

// hasWork says whether anything waits to be sent or acknowledged. The mirror
// alone does not know of what was sent since the handler told it last. The
// lock is held.
func (c *Conn) hasWork() bool {
	messages, _ := c.h.QueuedOut()
	return c.mirror.Queued || c.mirror.Sent || messages > 0
}

// dialable says whether a peer could dial us. If not, standby would be for
// ever with a peer that has something to send: only we can bring the two
// together. The lock is held.
func (m *Messenger) dialable() bool { return m.addrs.V2().AddrPort.Port() != 0 }

// terminal says that dialling again would not help.
func terminal(err error) bool {
	if errors.Is(err, ErrWrongPeer) {
		return true
	}
	var he *handshake.Error
	return errors.As(err, &he) && he.Terminal()
}

// nextBackoff is the pause before the next attempt: doubling up to the cap, and
// the cap at once after WAIT.
func (c *Conn) nextBackoff(err error) time.Duration {
	most := c.m.cfg.MaxBackoff
	switch {
	case errors.Is(err, ErrWait):
		c.backoff = most
	case c.backoff == 0:
		c.backoff = min(c.m.cfg.InitialBackoff, most)
	default:
		c.backoff = min(2*c.backoff, most)
	}
	return c.backoff
}

// wait starts the back-off timer. The lock is held.
func (c *Conn) wait(d time.Duration) {
	if !c.move(evBackoff) {
		return
	}
	c.h.Delay(false, nil)
	t := new(backoffTimer)
	c.timer = t
	t.stop = c.m.cfg.Clock.AfterFunc(d, func() {
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		// A stopped timer may have fired already.
		if c.timer == t && c.state == StateWait {
			c.timer = nil
			c.connect(evTimer)
		}
	})
}

// backoffTimer is one run of the timer of state WAIT.
type backoffTimer struct{ stop func() bool }
