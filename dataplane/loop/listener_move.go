package loop

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Move has another core accept from here on. The listening socket stays open, so that
// no connection is refused: new connections wait in the kernel's queue meanwhile. On a
// core it fails with ErrOnCore.
func (l *Listener) Move(to *Core) error {
	if l.core.Load() == to {
		return nil
	}
	paused := false
	if err := l.call(func(*Core) { paused = l.paused }); err != nil {
		return err
	}
	if err := l.Pause(); err != nil {
		return err
	}
	arrived := make(chan error, 1)
	if err := l.call(func(c *Core) { l.leaveFor(c, to, func(err error) { arrived <- err }) }); err != nil {
		return err
	}
	err := <-arrived
	if err != nil {
		err = fmt.Errorf("listener %v: move to core %d: %w", l.addr, to.id, err)
	}
	if !paused {
		if e := l.Resume(); err == nil { // which does nothing to one that is closed
			err = e
		}
	}
	return err
}

// departure is a listener that is about to leave its core.
type departure struct {
	to    *Core
	done  func(error)
	retry Timer
}

// leaveFor has the listener go to another core. done is called once, on either core.
func (l *Listener) leaveFor(c, to *Core, done func(error)) {
	if l.leaving != nil {
		done(fmt.Errorf("it is on its way already: %w", unix.EBUSY))
		return
	}
	l.leaving = &departure{to: to, done: done}
	l.leaving.retry.Fire = func(c *Core, _ time.Duration) { l.depart(c) }
	l.depart(c)
}

// depart takes the socket away from the driver, as often as it takes: it has nowhere
// else to stay.
func (l *Listener) depart(c *Core) {
	if !l.open {
		l.departed(c, ErrLinkClosed)
		return
	}
	fd, err := l.takeOff(c)
	if err != nil {
		l.trouble.note(c, l.addr, err)
		c.timers.arm(&l.leaving.retry, c.now+acceptRetry)
		return
	}
	d := l.leaving
	l.leaving = nil
	l.leave(c)
	l.hand(d.to, fd, d.done)
}

// departed ends a departure that has become pointless.
func (l *Listener) departed(c *Core, err error) {
	if d := l.leaving; d != nil {
		l.leaving = nil
		c.timers.stop(&d.retry)
		d.done(err)
	}
}

// leave takes the listener off the core that has it, but for its socket.
func (l *Listener) leave(c *Core) {
	c.timers.stop(&l.retry)
	c.freeEntry(l.user)
	l.op, l.user = 0, 0
	l.pauseDone()
}

// hand gives the listener to another core, with its descriptor; done runs
// there.
func (l *Listener) hand(to *Core, fd int, done func(error)) {
	// The new owner is stored last: a goroutine that reads it posts its task after this
	// one, and the old core runs nothing meanwhile.
	defer l.core.Store(to)
	to.Post(&Task{Run: func(c *Core) {
		if c.closed.Load() {
			l.open = false
			c.cfg.CloseFD(fd)
			done(ErrStopped)
			return
		}
		l.fd.Store(int64(fd))
		l.outside = true
		l.setUp(c)
		l.arm(c)
		done(nil)
	}})
}
