//go:build invariants || race

package sessions

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// lockCheck knows which goroutine holds the lock, and which goroutines are cores
// that call us. A call that breaks the rules of the lock panics. It does not
// allocate, so that tests of allocations hold with it, too.
type lockCheck struct {
	holder atomic.Uint64
	taken  uint64                          // how often; guarded by the lock
	plane  atomic.Pointer[dataplane.Plane] // whose threads are cores, in callbacks or not

	mu    sync.Mutex
	text  [64]byte        // of a stack; guarded by mu
	cores map[uint64]bool // goroutines that were in a callback of a core: whether they are now; guarded by mu
}

// mayLock says that the caller is about to take the lock.
func (l *lockCheck) mayLock() {
	me := l.goroutine()
	l.mu.Lock()
	on := l.cores[me]
	l.mu.Unlock()
	if plane := l.plane.Load(); on || plane != nil && plane.OnCore() {
		panic("ringmsgr: broken invariant: a core takes the messenger's lock")
	}
	if l.holder.Load() == me {
		panic("ringmsgr: broken invariant: the messenger's lock is taken twice")
	}
}

// watch tells of the cores.
func (l *lockCheck) watch(p *dataplane.Plane) { l.plane.Store(p) }

func (l *lockCheck) locked() {
	l.holder.Store(l.goroutine())
	l.taken++
}

// count is how often the lock was taken. The lock is held.
func (l *lockCheck) count() uint64 { return l.taken }

func (l *lockCheck) unlocked() { l.holder.Store(0) }

// mustBeFree says that the caller is about to do something that must not happen
// under the lock.
func (l *lockCheck) mustBeFree(what string) {
	if holder := l.holder.Load(); holder != 0 && holder == l.goroutine() {
		panic("ringmsgr: broken invariant: the messenger's lock is held over " + what)
	}
}

// waits says that the caller is about to wait for the kernel.
func (l *lockCheck) waits() { l.mustBeFree("a system call") }

// enterCore and leaveCore enclose a callback of a core.
func (l *lockCheck) enterCore() {
	l.mustBeFree("a callback of a core")
	l.onCore(true)
}

func (l *lockCheck) leaveCore() { l.onCore(false) }

func (l *lockCheck) onCore(on bool) {
	me := l.goroutine()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cores == nil {
		l.cores = make(map[uint64]bool)
	}
	l.cores[me] = on
}

// goroutine is the number of the goroutine that calls.
func (l *lockCheck) goroutine() (n uint64) {
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

// probe is p that must not be called under the lock.
func (l *lockCheck) probe(p probe.Probe) probe.Probe {
	if p == nil {
		return nil
	}
	return probe.Func(func(ctx context.Context, e probe.Event) error {
		if e.When == probe.Data {
			l.enterCore()
			defer l.leaveCore()
		} else {
			l.mustBeFree("a call of the probe")
		}
		return p.At(ctx, e)
	})
}

// logger is l that must not be called under the lock.
func (l *lockCheck) logger(log *slog.Logger) *slog.Logger {
	return slog.New(checkedHandler{log.Handler(), l})
}

type checkedHandler struct {
	slog.Handler
	check *lockCheck
}

func (h checkedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	h.check.mustBeFree("a log handler")
	return h.Handler.Enabled(ctx, level)
}

func (h checkedHandler) Handle(ctx context.Context, r slog.Record) error {
	h.check.mustBeFree("a log handler")
	return h.Handler.Handle(ctx, r)
}

func (h checkedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return checkedHandler{h.Handler.WithAttrs(attrs), h.check}
}

func (h checkedHandler) WithGroup(name string) slog.Handler {
	return checkedHandler{h.Handler.WithGroup(name), h.check}
}
