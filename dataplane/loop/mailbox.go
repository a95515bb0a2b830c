package loop

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
)

// There are three kinds of calls. Calls of the core alone assert it in builds with
// invariants. Calls that wait for a core fail at once on a core (ErrOnCore). All other
// calls may come from any goroutine. Stepped cores have no thread of their own: nothing
// is checked there.

// ErrOnCore is the error of a call that waits for a core and was made on a core of the
// same plane, for example in a callback: it would wait for itself, or hold up every
// connection of the core. The call has done nothing.
var ErrOnCore = errors.New("loop: a call that waits for a core was made on one")

// OnCore says that the caller runs on the thread of one of the cores. Any
// goroutine.
func (p *Plane) OnCore() bool {
	defer stayOnThread()()
	tid := int32(unix.Gettid())
	return slices.ContainsFunc(p.All(), func(c *Core) bool { return c.tid.Load() == tid })
}

// Current says that the caller runs on the thread of this core, or in a turn of one that is
// stepped; never on one that is gone. Any goroutine.
func (c *Core) Current() bool {
	defer stayOnThread()()
	return c.tid.Load() == int32(unix.Gettid())
}

// stayOnThread keeps the caller on its thread until end. Else another thread could take the caller
// over between two looks, and the former one become that of a core, or stop being that.
func stayOnThread() (end func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// assertOwner panics in invariant builds if the caller is not the core.
func (c *Core) assertOwner() {
	if invariants.Enabled {
		tid := c.tid.Load() // 0: no thread
		invariants.Check(tid == 0 || tid == int32(unix.Gettid()), "owner-only call from another thread")
	}
}

// Do runs f on the core soon. Any goroutine may call it; it does not wait. It
// returns ErrStopped, and f never runs, once the core has stopped.
func (c *Core) Do(f func(c *Core)) error {
	if c.stopping.Load() {
		return ErrStopped
	}
	c.post(&Task{Run: f, of: &notLate})
	return nil
}

// call runs f on the core and waits for it. On a core it fails with ErrOnCore.
func (c *Core) call(f func(c *Core)) error {
	if c.plane.OnCore() {
		return ErrOnCore
	}
	ran := make(chan struct{})
	if err := c.Do(func(c *Core) { f(c); close(ran) }); err != nil {
		<-c.done // the core uses no memory of the caller any more
		return err
	}
	return c.await(ran, nil)
}

// await waits until ran is closed by the core, or the core has ended, or still is closed.
func (c *Core) await(ran, still <-chan struct{}) error {
	select {
	case <-ran:
		return nil
	case <-still:
		return ErrStalled
	case <-c.done:
	}
	select {
	case <-ran: // while the core ended
		return nil
	default:
		return ErrStopped
	}
}

// Post hands t to the core and wakes it if it sleeps. It does not wait, and does not
// allocate; t must not be posted again before it runs. After the end of the core t
// still runs, on another goroutine, one task at a time (Gone), so that state of the core
// can be closed or go to another core. Tasks that one goroutine posts to one core run in
// the order of its calls. Any goroutine.
func (c *Core) Post(t *Task) {
	t.of = nil
	c.post(t)
}

// Owner is the core that owns an object which moves between cores, such as a connection.
// The owner stores the next one. Any goroutine may load it.
type Owner struct{ atomic.Pointer[Core] }

// Post is Core.Post to the core that is the owner by the time t runs. Tasks may pass each
// other while the owner changes. Any goroutine.
func (o *Owner) Post(t *Task) {
	t.of = o
	o.Load().post(t)
}

// notLate is in Task.of where a core that is gone does not run the task.
var notLate Owner

// run runs the task, or posts it to the core that its object has moved to.
func (t *Task) run(c *Core) {
	if t.of != nil && t.of != &notLate {
		if owner := t.of.Load(); owner != c {
			owner.post(t)
			return
		}
	}
	t.of = nil // it may hold much memory
	t.Run(c)
}

func (c *Core) post(t *Task) {
	c.box.push(t)
	if c.closed.Load() {
		go c.runLate()
		return
	}
	c.rouse()
}

// rouse ends the sleep of the core.
func (c *Core) rouse() {
	if c.sleeping.Load() && c.sleeping.CompareAndSwap(true, false) {
		c.drv.Wake()
	}
}

// runLate runs tasks that were posted to a core that is gone.
func (c *Core) runLate() {
	c.after.Lock()
	defer c.after.Unlock()
	for t := c.box.take(); t != nil; {
		next := t.next
		t.next = nil
		if t.of != &notLate {
			t.run(c)
		}
		t = next
	}
}

// Task is one entry of a core's mailbox (Core.Post, Owner.Post). It is embedded in
// long-lived objects or allocated for a single call, and must not be copied. Posting it
// does not allocate.
type Task struct {
	// Run is called on the core, once for each Post. It must not block, and may post the
	// task again.
	Run  func(c *Core)
	next *Task
	of   *Owner // whom it is for; nil: a core that was named
}

// mailbox hands tasks from any goroutine to one core: push is one
// compare-and-swap, take empties it in one exchange. Tasks of one producer come
// out in the order in which it pushed them.
type mailbox struct{ head atomic.Pointer[Task] }

func (b *mailbox) push(t *Task) {
	for {
		old := b.head.Load()
		t.next = old
		if b.head.CompareAndSwap(old, t) {
			return
		}
	}
}

func (b *mailbox) empty() bool { return b.head.Load() == nil }

// take removes everything and returns it oldest first.
func (b *mailbox) take() *Task {
	var first *Task
	for t := b.head.Swap(nil); t != nil; {
		next := t.next
		t.next = first
		first, t = t, next
	}
	return first
}

// Loan returns an object to its core that framers have lent to other goroutines, such
// as a received frame with its buffer. The object embeds it, so that giving back does
// not allocate.
type Loan struct {
	Of   Returner // the lent object
	next *Loan
}

// Returner gets Returned on the core when it is back. After the end of the core it gets
// it on another goroutine, one at a time; TakeBack and Local.Of still work there.
type Returner interface{ Returned(c *Core) }

// Return gives l back: the core picks it up in its next turn. That is at once if reads wait, as
// they may wait for the memory of l. Any goroutine.
func (c *Core) Return(l *Loan) {
	if c.closed.Load() {
		c.afterEnd.Lock()
		defer c.afterEnd.Unlock()
		l.Of.Returned(c)
		c.drainPool()
		return
	}
	for {
		old := c.returns.Load()
		l.next = old
		if c.returns.CompareAndSwap(old, l) {
			break
		}
	}
	if c.closed.Load() { // in the meantime
		c.afterEnd.Lock()
		defer c.afterEnd.Unlock()
		c.takeReturned()
		c.drainPool()
		return
	}
	if c.short.Load() {
		c.rouse()
	}
}

// regains reports that objects came back for whose memory reads may wait.
func (c *Core) regains() bool { return c.short.Load() && c.returns.Load() != nil }

func (c *Core) takeReturned() {
	if c.returns.Load() == nil {
		return
	}
	for l := c.returns.Swap(nil); l != nil; {
		next := l.next
		l.next = nil
		l.Of.Returned(c)
		l = next
	}
}

// Local is a value of type T on each core, which the framers of one protocol share there:
// free lists, scratch memory. Declare it once, as a variable of the protocol's package;
// it holds no state itself.
type Local[T any] struct{ key byte } // its address is the key

// local is the *T of one Local[T].
type local struct {
	key   *byte
	value any
}

// Of is the core's value, made as the zero T when it is first asked for. On the
// core.
func (l *Local[T]) Of(c *Core) *T {
	c.assertOwner()
	for i := range c.locals {
		if c.locals[i].key == &l.key {
			return c.locals[i].value.(*T)
		}
	}
	v := new(T)
	c.locals = append(c.locals, local{&l.key, v})
	return v
}
