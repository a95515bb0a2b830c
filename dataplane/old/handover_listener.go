package dataplane

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrNotListening: a descriptor that is no listening TCP socket.
var ErrNotListening = errors.New("dataplane: not a listening TCP socket")

// AdoptListener takes over a listening descriptor, such as one that another
// process has handed over, and closes it in the end, on an error as well. The
// socket itself lives on while other processes have it. The listener is
// paused: it accepts after Resume. Any goroutine but the core's.
func (c *Core) AdoptListener(fd int, accepted func(*Link)) (*Listener, error) {
	addr, err := listening(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("core %d: adopt descriptor %d: %w", c.id, fd, err)
	}
	l := newListener(c, addr, accepted)
	l.paused = true
	if e := c.call(func(c *Core) { l.sock, err = c.drv.Adopt(fd); l.register(c, err) }); e != nil {
		err = e
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("core %d: adopt listener %v: %w", c.id, addr, err)
	}
	return l, nil
}

// register gives an adopted listener its slot.
func (l *Listener) register(c *Core, err error) {
	if err != nil {
		return
	}
	l.setUp(c)
}

// listening checks a descriptor and returns its address.
func listening(fd int) (netip.AddrPort, error) {
	for _, want := range []struct{ option, value int }{{unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 1}, {unix.SO_PROTOCOL, unix.IPPROTO_TCP}} {
		if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option); err != nil {
			return netip.AddrPort{}, fmt.Errorf("%w: %w", ErrNotListening, err)
		} else if v != want.value {
			return netip.AddrPort{}, ErrNotListening
		}
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return netip.AddrPort{}, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(sa.Addr)
		if sa.ZoneId != 0 {
			a = a.WithZone(fmt.Sprint(sa.ZoneId))
		}
		return netip.AddrPortFrom(a, uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, ErrNotListening
}

// Pause stops accepting and leaves the socket open: who connects waits in the
// kernel's queue, for Resume or for another process that has the socket. When
// it returns, every connection that was taken out of that queue has been given
// to accepted. Any goroutine but the core's.
func (l *Listener) Pause() error {
	settled := make(chan struct{})
	err := l.call(func(c *Core) {
		l.paused = true
		c.timers.stop(&l.retry)
		if l.op == 0 {
			close(settled)
			return
		}
		l.settled = append(l.settled, settled)
		c.drv.Cancel(l.op)
	})
	if err != nil {
		return err
	}
	select {
	case <-settled:
		return nil
	case <-l.core.Load().done:
		return ErrStopped
	}
}

// Resume accepts again, or for the first time after AdoptListener. Any
// goroutine but the core's.
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
// to another process. The caller closes it. Any goroutine but the core's.
func (l *Listener) Descriptor() (int, error) {
	fd, err := -1, error(nil)
	if e := l.call(func(*Core) {
		if !l.open {
			err = ErrLinkClosed
			return
		}
		fd, err = unix.FcntlInt(uintptr(l.sock.FD()), unix.F_DUPFD_CLOEXEC, 0)
	}); e != nil {
		return -1, e
	}
	if err != nil {
		return -1, fmt.Errorf("listener %v: duplicate: %w", l.addr, err)
	}
	return fd, nil
}

// settle tells who waits in Pause.
func (l *Listener) settle() {
	for _, done := range l.settled {
		close(done)
	}
	l.settled = nil
}

// Share lets other sockets of the same user listen on the address, too
// (SO_REUSEPORT). Any goroutine but the core's.
func (l *Listener) Share() error {
	err := error(nil)
	if e := l.call(func(c *Core) {
		if !l.open {
			err = ErrLinkClosed
			return
		}
		if c.cfg.Manual {
			return // a simulated network asks nobody
		}
		err = unix.SetsockoptInt(l.sock.FD(), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}
