package steplock

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Check knows which goroutine holds the lock, and which goroutines are cores
// that call us. A call that breaks the rules of the lock panics. It does not
// allocate, so that tests of allocations hold with it, too. In builds that are not
// Enabled its methods do nothing, and cost nothing.
type Check struct {
	holder atomic.Uint64
	taken  uint64                     // how often; guarded by the lock
	plane  atomic.Pointer[loop.Plane] // whose threads are cores, in callbacks or not

	mu    sync.Mutex
	text  [64]byte        // of a stack; guarded by mu
	cores map[uint64]bool // goroutines that were in a callback of a core: whether they are now; guarded by mu
}

// mayLock says that the caller is about to take the lock.
func (l *Check) mayLock() {
	if !Enabled {
		return
	}
	me := l.goroutine()
	l.mu.Lock()
	on := l.cores[me]
	l.mu.Unlock()
	if plane := l.plane.Load(); on || plane != nil && plane.OnCore() {
		panic("ringmsgr: broken invariant: a core takes the lock of sessions")
	}
	if l.holder.Load() == me {
		panic("ringmsgr: broken invariant: the lock of sessions is taken twice")
	}
}

// Watch notes the goroutines of the cores.
func (l *Check) Watch(p *loop.Plane) { l.plane.Store(p) }

func (l *Check) locked() {
	if Enabled {
		l.holder.Store(l.goroutine())
		l.taken++
	}
}

// TakenLocked is the number of times that the lock was taken; 0 if nobody counts.
func (l *Check) TakenLocked() uint64 { return l.taken }

func (l *Check) unlocked() {
	if Enabled {
		l.holder.Store(0)
	}
}

// MustBeFree says that the caller is about to do something that must not happen
// under the lock.
func (l *Check) MustBeFree(what string) {
	if !Enabled {
		return
	}
	if holder := l.holder.Load(); holder != 0 && holder == l.goroutine() {
		panic("ringmsgr: broken invariant: the lock of sessions is held over " + what)
	}
}

// Waits says that the caller is about to wait for the kernel.
func (l *Check) Waits() { l.MustBeFree("a system call") }

// EnterCore and LeaveCore enclose a callback of a core.
func (l *Check) EnterCore() {
	l.MustBeFree("a callback of a core")
	l.onCore(true)
}

// LeaveCore ends EnterCore.
func (l *Check) LeaveCore() { l.onCore(false) }

func (l *Check) onCore(on bool) {
	if !Enabled {
		return
	}
	me := l.goroutine()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cores == nil {
		l.cores = make(map[uint64]bool)
	}
	l.cores[me] = on
}

// goroutine is the number of the calling goroutine.
func (l *Check) goroutine() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	runtime.Stack(l.text[:], false)
	for _, digit := range l.text[len("goroutine "):] {
		if digit < '0' || digit > '9' {
			break
		}
		n = 10*n + uint64(digit-'0')
	}
	return n
}

// Probe is p, with a check that nobody calls it under the lock.
func (l *Check) Probe(p probe.Probe) probe.Probe {
	if p == nil || !Enabled {
		return p
	}
	return probe.Func(func(ctx context.Context, e probe.Event) error {
		if e.When == probe.Data {
			l.EnterCore()
			defer l.LeaveCore()
		} else {
			l.MustBeFree("a call of the probe")
		}
		return p.At(ctx, e)
	})
}

// Logger is l, with a check that nobody calls it under the lock.
func (l *Check) Logger(log *slog.Logger) *slog.Logger {
	if !Enabled {
		return log
	}
	return slog.New(checkedHandler{log.Handler(), l})
}

type checkedHandler struct {
	slog.Handler
	check *Check
}

func (h checkedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	h.check.MustBeFree("a log handler")
	return h.Handler.Enabled(ctx, level)
}

func (h checkedHandler) Handle(ctx context.Context, r slog.Record) error {
	h.check.MustBeFree("a log handler")
	return h.Handler.Handle(ctx, r)
}

func (h checkedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return checkedHandler{h.Handler.WithAttrs(attrs), h.check}
}

func (h checkedHandler) WithGroup(name string) slog.Handler {
	return checkedHandler{h.Handler.WithGroup(name), h.check}
}
