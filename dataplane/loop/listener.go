package loop

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Listener accepts connections on one core. Every core that listens on an
// address has one, in one SO_REUSEPORT group.
type Listener struct {
	core     atomic.Pointer[Core] // owner; changes by Move, and when the core fails
	between  atomic.Bool          // the owner does not have it yet
	addr     netip.AddrPort
	accepted func(*Link)
	fd       atomic.Int64

	// The core's own.
	sock  uring.Socket
	user  uint64
	retry Timer
	open  bool
	op    uring.Op // the accept that is armed, 0: none
	// outside: the driver does not have the socket, whose descriptor is fd, until it is armed. The
	// socket of another process, left in an epoll set, would be refused when it comes again.
	outside bool
	trouble error         // why connections are not accepted, as it was logged last; nil: they are
	pace    time.Duration // refusals occupy it up to then, see refusedOne
	leaving *departure    // nil: it stays
	// Not to be armed any more, until Resume or for ever; and the channel of the caller
	// that waits until it is not armed.
	paused  bool
	closing bool
	settled []chan struct{}
}

// Listen binds addr on the core. accepted runs on the core for each
// connection, with a Link that is the callee's; it must not block. On a core
// it fails with ErrOnCore.
func (c *Core) Listen(addr netip.AddrPort, opt uring.ListenOptions, accepted func(*Link)) (*Listener, error) {
	l := newListener(c, addr, accepted)
	if err := l.call(func(c *Core) error { return l.openOn(c, opt) }); err != nil {
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

// Accepted is the function that gets the connections, that of Listen.
func (l *Listener) Accepted() func(*Link) { return l.accepted }

// Core is the core that the listener accepts on.
func (l *Listener) Core() *Core { return l.core.Load() }

// FD is the listener's descriptor, for attaching a steering program. The listener owns
// it, and has another one after a move; use Descriptor where a move may happen at the
// same time.
func (l *Listener) FD() int { return int(l.fd.Load()) }

// Close stops accepting, and closes the socket when every connection that was
// taken out of the kernel's queue has been given to accepted. Connections that
// are still in that queue are reset, unless another listener of the group
// inherits them. Closing twice is no error. On a core it fails with ErrOnCore.
func (l *Listener) Close() error {
	return l.halt(&l.closing)
}

// call runs f on the core that has the listener and waits for its result. On a core it
// fails with ErrOnCore.
func (l *Listener) call(f func(c *Core) error) error {
	for {
		c := l.core.Load()
		ran, result := false, error(nil)
		err := c.call(func(c *Core) {
			if ran = !l.between.Load() && l.core.Load() == c; ran {
				result = f(c)
			}
		})
		switch {
		case errors.Is(err, ErrOnCore), err != nil && !l.between.Load() && l.core.Load() == c:
			return err
		case err == nil && ran:
			return result
		}
	}
}

// withSocket is call for a listener that is open; another one fails with ErrLinkClosed.
func (l *Listener) withSocket(f func(c *Core) error) error {
	return l.call(func(c *Core) error {
		if !l.open {
			return ErrLinkClosed
		}
		return f(c)
	})
}

func (l *Listener) openOn(c *Core, opt uring.ListenOptions) error {
	s, err := c.drv.Listen(l.addr, opt)
	if err != nil {
		return err
	}
	l.sock, l.addr = s, c.drv.LocalAddr(s)
	l.setUp(c, s.FD())
	return nil
}

// setUp gives the listener, whose descriptor is fd, a slot, and has it accept.
func (l *Listener) setUp(c *Core, fd int) {
	l.user, l.open = c.slot(l), true
	l.fd.Store(int64(fd))
	l.retry.Fire = func(c *Core, _ time.Duration) {
		if l.leaving != nil {
			l.depart(c)
		} else {
			l.arm(c)
		}
	}
	l.arm(c)
}

func (l *Listener) arm(c *Core) {
	if !l.open || l.paused || l.closing || l.leaving != nil || l.op != 0 || !l.enter(c) {
		return
	}
	var err error
	if l.op, err = c.drv.Arm(uring.KindAccept, l.sock, l.user); err != nil {
		l.op = 0
		l.later(c, err)
	}
}

// closeOn closes the socket at once. While an accept is armed only the end of the core
// may call it: later completions of the accept find no listener.
func (l *Listener) closeOn(c *Core) {
	if !l.open {
		return
	}
	l.open = false
	c.timers.stop(&l.retry)
	l.shut(c)
	c.freeEntry(l.user)
	l.pauseDone()
	l.departed(ErrLinkClosed)
}

func (l *Listener) complete(c *Core, cp *uring.Completion) {
	if cp.Res >= 0 {
		c.stats.Accepts++
		l.accept(c, int(cp.Res))
	} else {
		c.stats.AcceptErrors++
	}
	if cp.Flags&uring.More != 0 {
		return
	}
	l.op = 0
	if !l.quiet(c) {
		return
	}
	switch errno := cp.Errno(); errno {
	case 0, unix.ECANCELED, unix.ECONNABORTED, unix.EINTR, unix.EPROTO:
		l.again(c)
	default:
		// Accepting at once would fail at once: let descriptors and memory come back.
		l.later(c, errno)
	}
}

func (l *Listener) accept(c *Core, fd int) {
	link, err := c.take(fd)
	switch err {
	case nil:
		s := link.sock
		l.over(c)
		l.accepted(link)
		if !s.dead {
			s.arm() // no request is spent on one that is refused
		} else {
			l.refusedOne(c)
		}
	case unix.ECONNRESET: // gone already
	default:
		c.stats.AcceptErrors++
		l.note(c, err)
	}
}

// A connection that is refused at once still costs its accept and its close. So a
// listener that refuses many connections pauses in between: connections that come
// meanwhile wait in the kernel's queue for some milliseconds, and cost one wake-up
// together. In the long run it refuses at most one connection in perRefusal, which
// takes a fifth of a core.

const (
	// perRefusal is the time that a refusal counts for.
	perRefusal = 80 * time.Microsecond
	// refusedAhead is how far ahead of its pace a listener may be before it pauses.
	refusedAhead = 2 * time.Millisecond
)

// refusedOne is called for each connection that was refused.
func (l *Listener) refusedOne(c *Core) {
	c.stats.Refused++
	pausing := l.ahead(c) > refusedAhead
	l.pace = max(l.pace, c.now) + perRefusal
	if !pausing && l.ahead(c) > refusedAhead {
		c.stats.AcceptPauses++
		if l.op != 0 {
			c.drv.Cancel(l.op)
		}
	}
}

// ahead is how far the listener is ahead of its pace.
func (l *Listener) ahead(c *Core) time.Duration { return l.pace - c.now }

// again has the listener accept more, at once or after a pause.
func (l *Listener) again(c *Core) {
	if l.ahead(c) > refusedAhead {
		c.timers.arm(&l.retry, l.pace)
		return
	}
	l.arm(c)
}

// A listener that lacks descriptors, memory or another resource never gives up: it tries
// again after a pause, and new connections wait in the kernel's queue. The log has the
// cause once, and one line when connections are accepted again.

// acceptRetry is the pause after an attempt that failed.
const acceptRetry = 100 * time.Millisecond

// note is called for each attempt that fails.
func (l *Listener) note(c *Core, err error) {
	if l.trouble == nil || l.trouble.Error() != err.Error() {
		c.plane.lines.Warn("connections wait, not accepted", "core", c.id, "addr", l.addr, "err", err)
	}
	l.trouble = err
}

// over is called for each connection that is accepted.
func (l *Listener) over(c *Core) {
	if l.trouble != nil {
		l.trouble = nil
		c.plane.lines.Info("connections are accepted again", "core", c.id, "addr", l.addr)
	}
}

// later has the listener try again after a pause.
func (l *Listener) later(c *Core, err error) {
	l.note(c, err)
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

// shut closes the socket, wherever it is.
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

// Move has another core accept from here on. The listening socket stays open, so that
// no connection is refused: new connections wait in the kernel's queue meanwhile. If that core
// ends meanwhile, or has ended, Move fails with ErrStopped, and a third one accepts, if one runs.
// On a core it fails with ErrOnCore.
func (l *Listener) Move(to *Core) error {
	arrived := make(chan error, 1)
	err := l.withSocket(func(c *Core) error {
		switch {
		case l.leaving != nil:
			return fmt.Errorf("it is on its way already: %w", unix.EBUSY)
		case c == to:
			arrived <- nil
		default:
			l.leaving = &departure{to: to, done: func(err error) { arrived <- err }}
			l.disarm(c)
		}
		return nil
	})
	if err == nil {
		err = <-arrived
	}
	if err != nil {
		return fmt.Errorf("listener %v: move to core %d: %w", l.addr, to.id, err)
	}
	return nil
}

// departure is a listener that is about to leave its core. done is called once, on either core.
type departure struct {
	to   *Core
	done func(error)
}

// depart takes the socket away from the driver, as often as it takes: it has nowhere
// else to stay. No accept is armed. It says whether the core has lost the listener.
func (l *Listener) depart(c *Core) (gone bool) {
	fd, err := l.takeOff(c)
	if err != nil {
		l.later(c, err)
		return false
	}
	d := l.leaving
	l.leaving = nil
	l.leave(c)
	l.hand(d.to, fd, d.done)
	return true
}

// departed ends a departure that has become pointless.
func (l *Listener) departed(err error) {
	if d := l.leaving; d != nil {
		l.leaving = nil
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

// hand gives the listener to another core, with its descriptor; done, which may be nil, runs
// there. A core that ends would take it along: it goes on to the next one that runs.
func (l *Listener) hand(to *Core, fd int, done func(error)) {
	l.between.Store(true)
	l.core.Store(to)
	to.Post(&Task{Run: func(c *Core) {
		l.outside = true
		if !c.stopping.Load() {
			l.setUp(c, fd)
			l.between.Store(false)
			if done != nil {
				done(nil)
			}
			return
		}
		next := c.plane.successorCore(c)
		if next != nil {
			l.hand(next, fd, nil)
		} else {
			l.open = false
			c.cfg.CloseFD(fd)
			l.between.Store(false)
		}
		if done != nil {
			done(ErrStopped)
		} else if next == nil {
			l.lost(c, ErrStopped)
		}
	}})
}

// lost logs that no core has the listener of core c, which has ended, any more.
func (l *Listener) lost(c *Core, err error) {
	c.cfg.Logger.Error("listener lost with its core", "core", c.id, "addr", l.addr, "err", err)
}

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
	l.paused, l.outside = true, true
	if err := l.call(func(c *Core) error { l.setUp(c, fd); return nil }); err != nil {
		c.cfg.CloseFD(fd)
		return nil, fmt.Errorf("core %d: adopt listener %v: %w", c.id, addr, err)
	}
	return l, nil
}

// listening checks a descriptor and returns its address.
func listening(fd int) (netip.AddrPort, error) {
	for _, want := range []struct{ option, value int }{
		{unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 1}, {unix.SO_PROTOCOL, unix.IPPROTO_TCP},
	} {
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
	err := l.call(func(c *Core) error {
		on, *why = c, true
		l.settled = append(l.settled, settled)
		l.disarm(c)
		return nil
	})
	if err != nil {
		return err
	}
	return on.await(settled, nil)
}

// disarm ends the accept that is armed.
func (l *Listener) disarm(c *Core) {
	if l.op != 0 {
		c.drv.Cancel(l.op)
	} else {
		l.quiet(c)
	}
}

// quiet is called when no accept is armed any more, with the work that waits for that. It
// returns false if the core does not have the listener any more.
func (l *Listener) quiet(c *Core) bool {
	if l.closing {
		l.closeOn(c)
	} else if l.leaving != nil && l.depart(c) {
		return false
	}
	l.pauseDone()
	return l.open
}

// Resume accepts again, or for the first time after AdoptListener. On a core
// it fails with ErrOnCore.
func (l *Listener) Resume() error {
	return l.call(func(c *Core) error {
		if l.paused {
			l.paused = false
			l.arm(c)
		}
		return nil
	})
}

// Descriptor duplicates the listener's descriptor, close-on-exec, to be handed
// to another process. The caller closes it. On a core it fails with ErrOnCore.
func (l *Listener) Descriptor() (fd int, err error) {
	err = l.withSocket(func(*Core) (err error) {
		fd, err = unix.FcntlInt(uintptr(l.FD()), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
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
	return l.withSocket(func(c *Core) error {
		if c.cfg.Stepped != nil {
			return nil // a simulated network has no such option
		}
		return unix.SetsockoptInt(l.FD(), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
}
