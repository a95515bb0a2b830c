package loop

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// Every call belongs to one of three kinds: those that only the core may make
// assert it in builds with invariants, those that wait for a core fail at once on
// one (ErrOnCore), and all others may come from anywhere. Stepped cores
// have no thread of their own: nothing is checked there.

// ErrOnCore is returned by a call that waits for a core and was made on a core of
// the same plane, such as in a callback: it would wait for itself, or hold up
// every connection of the core meanwhile. Nothing was done.
var ErrOnCore = errors.New("loop: a call that waits for a core was made on one")

// OnCore says that the caller runs on the thread of one of the cores. Any
// goroutine.
func (p *Plane) OnCore() bool {
	tid := int32(unix.Gettid())
	for _, c := range p.All() {
		if c.tid.Load() == tid {
			return true
		}
	}
	return false
}

// Current says that the caller runs on the thread of this core; never on one that is
// stepped, or gone. Any goroutine.
func (c *Core) Current() bool { return c.current() }

// current says that the caller runs on the thread of this core.
func (c *Core) current() bool { return c.tid.Load() == int32(unix.Gettid()) }

// assertOwner panics in invariant builds if the caller is not the core.
func (c *Core) assertOwner() {
	if invariants.Enabled {
		tid := c.tid.Load() // 0: no thread
		invariants.Check(tid == 0 || tid == int32(unix.Gettid()), "owner-only call from another thread")
	}
}
