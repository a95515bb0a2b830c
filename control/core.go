package control

import (
	"context"
	"runtime/pprof"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// What handlers share with their core is here: a Core has functions run on it (Task),
// fires timers, and has values of the user (CoreLocal). Nothing of it takes a lock. The
// cores themselves come and go by AddCore, RemoveCore and Shutdown alone.

// Core is one core of a messenger: an OS thread, the connections that it owns, and
// what the user has there. A handler finds its own by Conn.OwnerCore; Task.Run,
// Timer.Fire and the hooks of Config get it.
type Core struct {
	c     *dataplane.Core
	spare *lentMessage // released ones, the core's
}

// showCores has every core of the plane be a Core, and calls the user's hooks.
func showCores(cfg *Config, plane *dataplane.Config) {
	started, ended := plane.Started, plane.Ended
	plane.Started = func(c *dataplane.Core) error {
		core := &Core{c: c}
		c.Keep(core)
		if started != nil {
			if err := started(c); err != nil {
				return err
			}
		}
		if cfg.CoreStarted == nil {
			return nil
		}
		return cfg.CoreStarted(core)
	}
	plane.Ended = func(c *dataplane.Core) {
		if cfg.CoreStopped != nil {
			cfg.CoreStopped(coreOf(c))
		}
		if ended != nil {
			ended(c)
		}
	}
}

// offCore is for a goroutine that a core has started: its work is not the core's in
// profiles.
func offCore() { pprof.SetGoroutineLabels(context.Background()) }

// coreOf is the Core of one of the plane.
func coreOf(c *dataplane.Core) *Core { return c.Kept().(*Core) }

// OwnerCore is the core that owns the connection now. In Dispatcher.Fast, in the events
// of the connection, and in Request.Done that is the core on which they run; elsewhere it
// may change at any moment. It is nil for the connection to ourselves, whose dispatchers
// run on no core. It takes no lock. Any goroutine.
func (c *Conn) OwnerCore() *Core {
	if c.local {
		return nil
	}
	return coreOf(c.s.Handler().Core())
}

// Core returns the core with that number, nil if there is none. It takes no lock. Any
// goroutine, a core's too.
func (m *Messenger) Core(i int) *Core {
	if c := m.plane.Core(i); c != nil {
		return coreOf(c)
	}
	return nil
}

// ID is the number of the core. Any goroutine.
func (c *Core) ID() int { return c.c.ID() }

// Now is the monotonic clock of the core, as read once in each turn. On the core.
func (c *Core) Now() time.Duration { return c.c.Now() }

// Gone says that the core has ended. A task that runs nevertheless does so on another
// goroutine, one at a time. Any goroutine.
func (c *Core) Gone() bool { return c.c.Gone() }

// Task is a function to be run on a core, for Core.Post and Conn.Post. It is made by the
// user, best as a part of what it is about, and must not be copied. Only its first use
// allocates.
type Task struct {
	// Run is called on the core, once for each Post. It must not block, like
	// Dispatcher.Fast, and may post the task again.
	Run func(c *Core)

	task loop.Task
	conn *Conn // whose core it is for; nil: one that was named
}

// Post has t run on the core soon, and does not wait. Tasks that one goroutine posts to
// one core run in the order of its calls. t must not be posted again before it runs. If
// the core ends first t runs all the same, on another goroutine: Gone tells. Any
// goroutine, a core's too.
func (c *Core) Post(t *Task) { t.post(c.c, nil) }

// Post has t run soon on the core that owns the connection by then, whatever cores it
// moves between, and does not wait. It is like Core.Post in all else, but that tasks
// pass each other while the connection moves. For the connection to ourselves that is
// any core. Any goroutine, a core's too.
func (c *Conn) Post(t *Task) { t.post(c.s.Handler().Core(), c) }

func (t *Task) post(to *dataplane.Core, conn *Conn) {
	t.conn = conn
	if t.task.Run == nil {
		t.task.Run = t.arrive
	}
	to.Post(&t.task)
}

// arrive runs the task, or sends it after its connection.
func (t *Task) arrive(at *dataplane.Core) {
	if t.conn != nil {
		if owner := t.conn.s.Handler().Core(); owner != at {
			owner.Post(&t.task)
			return
		}
	}
	t.conn = nil
	t.Run(coreOf(at))
}

// Do has f run on the core soon, as Post does, at the price of an allocation.
func (c *Core) Do(f func(c *Core)) { c.Post(&Task{Run: f}) }

// Do has f run soon on the core that owns the connection by then, as Post does, at the
// price of an allocation.
func (c *Conn) Do(f func(c *Core)) { c.Post(&Task{Run: f}) }

// Offload has work run on another goroutine, as it may block, and then called on the core
// once work has returned, or behind the end of the core (Gone). A simulated core runs work at
// once. RemoveCore waits for both. On the core, Config.CoreStarted included.
func (c *Core) Offload(work func(), then func(c *Core)) {
	c.c.Offload(func() {
		offCore()
		work()
	}, func(c *loop.Core) { then(coreOf(c)) })
}

// Timer is one deadline of a core. It is made by the user, best as a part of what it
// is about, and must not be copied. Its core owns it while it is armed: what goes to
// another core with a connection is stopped in Dispatcher.Move, and armed in Moved.
type Timer struct {
	// Fire is called on the core when the time has come, and the timer is not armed any
	// more. It must not block, like Dispatcher.Fast, and may arm the timer again.
	Fire func(c *Core)

	timer loop.Timer
}

// Arm has t fire after d, or changes when it does. Only the first use of a timer
// allocates. A core that ends does not fire what is armed (Config.CoreStopped). On the
// core.
func (c *Core) Arm(t *Timer, d time.Duration) {
	if t.timer.Fire == nil {
		t.timer.Fire = t.fired
	}
	c.c.Arm(&t.timer, c.c.Now()+d)
}

func (t *Timer) fired(c *dataplane.Core, _ time.Duration) { t.Fire(coreOf(c)) }

// Stop disarms t; it does nothing if t is not armed. On the core.
func (c *Core) Stop(t *Timer) { c.c.Stop(&t.timer) }

// Armed says whether t is going to fire. On its core.
func (t *Timer) Armed() bool { return t.timer.Armed() }

// CoreLocal is a value of type T on each core of each messenger: what handlers share
// with those on the same core, without a lock. It is declared once, as a variable of
// the package that uses it, holds nothing itself, and must not be copied.
type CoreLocal[T any] struct{ local loop.Local[T] }

// Of is the core's value, made as the zero T when it is first asked for.
// Config.CoreStarted can fill it in, Config.CoreStopped give back what it holds. On the
// core, or in a task of one that is gone.
func (l *CoreLocal[T]) Of(c *Core) *T { return l.local.Of(c.c) }
