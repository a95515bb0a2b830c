package loop

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// errNotListening: a descriptor that is no listening TCP socket.
var errNotListening = errors.New("loop: not a listening TCP socket")

// AdoptListener takes over a listening descriptor, for example of another process, and
// closes it in the end, on an error as well. The socket itself lives while other
// processes have it. The listener is paused: it accepts after Resume. On a core it
// fails with ErrOnCore.
func (c *Core) AdoptListener(fd int, accepted func(*Link)) (*Listener, error) {
	addr, err := listening(fd)
	if err != nil {
		c.cfg.CloseFD(fd)
		return nil, fmt.Errorf("core %d: adopt descriptor %d: %w", c.id, fd, err)
	}
	l := newListener(c, addr, accepted)
	l.paused = true
	if e := c.call(func(c *Core) {
		if l.sock, err = c.drv.Adopt(fd); err == nil {
			l.setUp(c)
		}
	}); e != nil {
		err = e
	}
	if err != nil {
		c.cfg.CloseFD(fd)
		return nil, fmt.Errorf("core %d: adopt listener %v: %w", c.id, addr, err)
	}
	return l, nil
}

// listening checks a descriptor and returns its address.
func listening(fd int) (netip.AddrPort, error) {
	for _, want := range []struct{ option, value int }{{unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 1}, {unix.SO_PROTOCOL, unix.IPPROTO_TCP}} {
		if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option); err != nil {
			return netip.AddrPort{}, fmt.Errorf("%w: %w", errNotListening, err)
		} else if v != want.value {
			return netip.AddrPort{}, errNotListening
		}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return netip.AddrPort{}, err
	}
	addr := uring.LocalAddr(fd)
	if !addr.IsValid() {
		return addr, errNotListening
	}
	return addr, nil
}

// Pause stops accepting and leaves the socket open: new connections wait in the
// kernel's queue, for Resume or for another process that has the socket. When Pause
// returns, accepted has got every connection that was taken out of that queue. On a
// core it fails with ErrOnCore.
func (l *Listener) Pause() error {
	return l.halt(&l.paused)
}

// halt ends the accept that is armed and waits for its last completion, so that
// no connection which it has accepted is lost. why, which says that
// no other accept follows, is set on the core first.
func (l *Listener) halt(why *bool) error {
	settled := make(chan struct{})
	var on *Core
	err := l.call(func(c *Core) {
		on = c
		*why = true
		c.timers.stop(&l.retry)
		l.settled = append(l.settled, settled)
		if l.op == 0 {
			l.awaitQuiet(c)
			return
		}
		c.drv.Cancel(l.op)
	})
	if err != nil {
		return err
	}
	select {
	case <-settled:
		return nil
	case <-on.done:
	}
	select {
	case <-settled: // by the end of the core
		return nil
	default:
		return ErrStopped
	}
}

// awaitQuiet is called when no accept is armed any more.
func (l *Listener) awaitQuiet(c *Core) {
	if l.closing {
		l.closeOn(c)
	}
	l.pauseDone()
}

// Resume accepts again, or for the first time after AdoptListener. On a core
// it fails with ErrOnCore.
func (l *Listener) Resume() error {
	return l.call(func(c *Core) {
		if l.paused {
			l.paused = false
			if l.op == 0 {
				l.arm(c)
			}
		}
	})
}

// Descriptor duplicates the listener's descriptor, close-on-exec, to be handed
// to another process. The caller closes it. On a core it fails with ErrOnCore.
func (l *Listener) Descriptor() (int, error) {
	fd, err := -1, error(nil)
	if e := l.call(func(*Core) {
		if !l.open {
			err = ErrLinkClosed
			return
		}
		fd, err = unix.FcntlInt(uintptr(l.FD()), unix.F_DUPFD_CLOEXEC, 0)
	}); e != nil {
		return -1, e
	}
	if err != nil {
		return -1, fmt.Errorf("listener %v: duplicate: %w", l.addr, err)
	}
	return fd, nil
}

// pauseDone lets the call of Pause return.
func (l *Listener) pauseDone() {
	for _, done := range l.settled {
		close(done)
	}
	l.settled = nil
}

// Share lets other sockets of the same user listen on the address, too
// (SO_REUSEPORT). On a core it fails with ErrOnCore.
func (l *Listener) Share() error {
	err := error(nil)
	if e := l.call(func(c *Core) {
		if !l.open {
			err = ErrLinkClosed
			return
		}
		if c.cfg.Stepped != nil {
			return // a simulated network has no such option
		}
		err = unix.SetsockoptInt(l.FD(), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}
