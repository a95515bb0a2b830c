package dataplane

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// acceptRetry is the pause after an accept that failed for want of
// descriptors or memory.
const acceptRetry = 100 * time.Millisecond

// Listener accepts connections on one core. Every core that listens on an
// address has one, in one SO_REUSEPORT group.
type Listener struct {
	core     atomic.Pointer[Core] // owner; changes by Move, and when the core fails
	addr     netip.AddrPort
	accepted func(*Link)
	fd       atomic.Int64

	// The core's own.
	sock  uring.Socket
	user  uint64
	retry timer
	open  bool
	op    uring.Op // the accept that is armed, 0: none
	short bool     // of descriptors or memory: the last accept failed for want of them
	// Hand-over: not to be armed, and who waits until it is not.
	paused  bool
	settled []chan struct{}
}

// Listen binds addr on the core. accepted runs on the core for each
// connection, with a Link that is the callee's; it must not block. Any
// goroutine but the core's.
func (c *Core) Listen(addr netip.AddrPort, opt uring.ListenOptions, accepted func(*Link)) (*Listener, error) {
	l := newListener(c, addr, accepted)
	var err error
	if e := c.call(func(c *Core) { err = l.openOn(c, opt) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("core %d: listen %v: %w", c.id, addr, err)
	}
	return l, nil
}

func newListener(c *Core, addr netip.AddrPort, accepted func(*Link)) *Listener {
	l := &Listener{addr: addr, accepted: accepted}
	l.core.Store(c)
	return l
}

// Addr is the bound address.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Core is the core that the listener accepts on.
func (l *Listener) Core() *Core { return l.core.Load() }

// FD is the listener's descriptor, for attaching a steering program. It stays
// the listener's, and is another one behind a move; use Descriptor where that
// may happen at the same time.
func (l *Listener) FD() int { return int(l.fd.Load()) }

// Close stops accepting. Connections that the kernel had queued are reset,
// unless another listener of the group inherits them.
func (l *Listener) Close() error {
	return l.call(l.closeOn)
}

// call runs f on the core that has the listener and waits for it. Any
// goroutine but a core's.
func (l *Listener) call(f func(c *Core)) error {
	for {
		c := l.core.Load()
		ran := false
		err := c.call(func(c *Core) {
			if ran = l.core.Load() == c; ran {
				f(c)
			}
		})
		if err != nil && l.core.Load() == c || err == nil && ran {
			return err
		}
	}
}

func (l *Listener) openOn(c *Core, opt uring.ListenOptions) error {
	s, err := c.drv.Listen(l.addr, opt)
	if err != nil {
		return err
	}
	l.sock, l.addr = s, c.drv.LocalAddr(s)
	l.setUp(c)
	l.arm(c)
	return nil
}

// setUp gives the listener a slot.
func (l *Listener) setUp(c *Core) {
	var e *entry
	e, l.user = c.slot()
	e.lst, l.open = l, true
	l.fd.Store(int64(l.sock.FD()))
	l.retry.fire = func(c *Core, _ time.Duration) { l.arm(c) }
}

func (l *Listener) arm(c *Core) {
	if !l.open || l.paused || l.op != 0 {
		return
	}
	var err error
	if l.op, err = c.drv.Accept(l.sock, l.user); err != nil {
		l.op = 0
		c.cfg.Logger.Warn("accept not armed", "core", c.id, "addr", l.addr, "err", err)
		c.timers.arm(&l.retry, c.now+acceptRetry)
	}
}

func (l *Listener) closeOn(c *Core) {
	if !l.open {
		return
	}
	l.open = false
	c.timers.stop(&l.retry)
	c.drv.Close(l.sock)
	c.freeEntry(l.user)
	l.settle()
}

func (l *Listener) complete(c *Core, cp *uring.Completion) {
	if cp.Res >= 0 {
		if l.short {
			l.short = false
			c.cfg.Logger.Info("connections are accepted again", "core", c.id, "addr", l.addr)
		}
		c.stats.Accepts++
		l.accept(c, int(cp.Res))
	} else {
		c.stats.AcceptErrors++
	}
	if cp.Flags&uring.More != 0 {
		return
	}
	l.op = 0
	l.settle()
	switch cp.Errno() {
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		// Accepting at once would fail at once: let descriptors come back.
		if !l.short {
			l.short = true
			c.cfg.Logger.Warn("connections wait, not accepted", "core", c.id, "addr", l.addr, "err", cp.Errno())
		}
		c.timers.arm(&l.retry, c.now+acceptRetry)
	case 0, unix.ECANCELED, unix.ECONNABORTED, unix.EINTR, unix.EPROTO:
		l.arm(c)
	default:
		// Whatever it is may be there for long: not in every turn.
		c.timers.arm(&l.retry, c.now+acceptRetry)
	}
}

func (l *Listener) accept(c *Core, fd int) {
	us, err := c.drv.Adopt(fd)
	if err != nil {
		c.stats.AcceptErrors++
		_ = unix.Close(fd)
		return
	}
	s := newSocket(c)
	link := &Link{core: c, sock: s, local: c.drv.LocalAddr(us), peer: c.drv.PeerAddr(us), result: make(chan error, 1)}
	s.sock, s.link = us, link
	if !link.peer.IsValid() { // gone already
		s.fault(unix.ECONNRESET)
		return
	}
	s.arm()
	l.accepted(link)
}
