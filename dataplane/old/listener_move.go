package dataplane

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Move has another core accept from here on. The listening socket stays open
// all the time, so that no connection is refused: who connects meanwhile waits
// in the kernel's queue. Any goroutine but a core's.
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
	var err error
	arrived := make(chan struct{})
	if e := l.call(func(c *Core) {
		fd := -1
		if !l.open {
			err = ErrLinkClosed
		} else {
			fd, err = c.drv.Detach(l.sock)
		}
		if err != nil {
			close(arrived)
			return
		}
		l.leave(c)
		l.hand(to, fd, func(e error) { err = e; close(arrived) })
	}); e != nil {
		return e
	}
	<-arrived
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

// leave takes the listener off the core that has it, but for its socket.
func (l *Listener) leave(c *Core) {
	c.timers.stop(&l.retry)
	c.freeEntry(l.user)
	l.op, l.user = 0, 0
	l.settle()
}

// hand gives the listener to another core, with its descriptor; done runs
// there.
func (l *Listener) hand(to *Core, fd int, done func(error)) {
	// Nobody may find it at its new core before it is there: whoever reads the
	// new owner posts behind this task, and the old core runs nothing meanwhile.
	defer l.core.Store(to)
	to.post(&task{run: func(c *Core) {
		err := ErrStopped
		if !c.closed.Load() {
			l.sock, err = c.drv.Adopt(fd)
		}
		if err != nil {
			l.open = false
			_ = unix.Close(fd)
		} else {
			l.setUp(c)
			l.arm(c)
		}
		done(err)
	}})
}
