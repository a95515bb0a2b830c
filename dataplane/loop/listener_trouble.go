package loop

import (
	"net/netip"
	"time"
)

// A listener for which descriptors, memory or something else is missing never gives
// up: it tries again after a pause, and who connects waits in the kernel's queue. The
// log has the cause when it begins, not with each attempt, and one line when
// connections are accepted again.

// acceptRetry is the pause after an attempt that failed.
const acceptRetry = 100 * time.Millisecond

// trouble is why connections are not accepted. Owner: the listener's core.
type trouble struct {
	err error // the last cause that was logged, nil: there is none
}

// note is called for each attempt that fails.
func (t *trouble) note(c *Core, addr netip.AddrPort, err error) {
	if t.err == nil || t.err.Error() != err.Error() {
		c.plane.lines.Warn("connections wait, not accepted", "core", c.id, "addr", addr, "err", err)
	}
	t.err = err
}

// over is called for each connection that is accepted.
func (t *trouble) over(c *Core, addr netip.AddrPort) {
	if t.err != nil {
		t.err = nil
		c.plane.lines.Info("connections are accepted again", "core", c.id, "addr", addr)
	}
}

// later has the listener try again after a pause.
func (l *Listener) later(c *Core, err error) {
	l.trouble.note(c, l.addr, err)
	c.timers.arm(&l.retry, c.now+acceptRetry)
}

// enter gives the driver a socket that it does not have yet. It returns false if the
// driver refuses it: then it is tried again.
func (l *Listener) enter(c *Core) bool {
	if !l.outside {
		return true
	}
	s, err := c.drv.Adopt(l.FD())
	if err != nil {
		l.later(c, err)
		return false
	}
	l.sock, l.outside = s, false
	return true
}

// shut closes the socket, whoever has it.
func (l *Listener) shut(c *Core) {
	if l.outside {
		c.cfg.CloseFD(l.FD())
		return
	}
	c.drv.Close(l.sock)
}

// takeOff takes the socket away from the driver, if that has it.
func (l *Listener) takeOff(c *Core) (fd int, err error) {
	if l.outside {
		return l.FD(), nil
	}
	return c.drv.Detach(l.sock)
}
