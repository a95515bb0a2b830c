package loop

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	// ReceiveBytes is the size of the receive buffer that all connections of a
	// core share: small enough to stay in the L2 cache.
	ReceiveBytes = 64 << 10
	// timersPerTurn bounds the timers that one turn fires.
	timersPerTurn = 256
)

// Core is one OS thread with one driver and everything that it owns: listeners,
// sockets, the state that framers keep for the core, buffers and timers. No other
// goroutine touches these; other goroutines hand over tasks through the mailbox.
type Core struct {
	id    int
	plane *Plane
	cfg   *Config
	box   mailbox
	// sleeping is set while the core may be blocked in Wait with an empty
	// mailbox: the first goroutine that pushes a task then wakes it.
	sleeping atomic.Bool
	draining atomic.Bool // to stop as soon as it is empty
	stopping atomic.Bool
	done     chan struct{} // closed when the thread is gone
	reaped   chan struct{} // closed when a removed core is out of the plane's list
	returns  atomic.Pointer[Loan]
	short    atomic.Bool // reads wait, maybe for memory that is lent: Return wakes the core
	vitals   health
	tid      atomic.Int32 // its thread, 0: none
	load     atomic.Int64 // AddLoad
	expected atomic.Int64 // Expect
	// afterEnd guards pool and locals once the core has ended: any goroutine may
	// then return a loan.
	afterEnd  sync.Mutex
	after     sync.Mutex // held while tasks of a core that is gone run
	closed    atomic.Bool
	endInTurn bool          // without a thread: not in Plane.Close; fixed
	stepped   atomic.Uint64 // steps of a core without a thread; orders them before its end

	// The rest is the core's own.
	drv         uring.Driver
	info        uring.Info
	receive     ReceiveMode
	receiveWhy  Why
	now         time.Duration
	got         []uring.Completion // of this turn, not routed yet
	entries     []entry            // sockets, listeners and files by slot
	freeSlot    []uint32
	pending     []*Socket // sockets with something to write; each is asked once per turn
	flushing    []*Socket // the list of this turn
	todo        *Task     // taken out of the mailbox, not run yet
	owed        bool      // a quiet write is in flight, and a holder waits for its memory
	readable    []*Socket // the line of sockets that have bytes to be read
	served      int       // number of sockets that have left the line
	smallInLine int       // number of sockets in the line that are not in a large frame
	turnFrom    uint64    // stats.FramesIn when the turn began to receive
	timers      timers
	pool        pool
	trimmer     Timer // while the pool or the list of vecs holds more than it may keep for ever
	trimming    bool  // it has not freed yet all that the last period has not needed
	hot         *uring.Memory
	vecs        vecList
	locals      []local // of framers
	started     bool    // Config.Started has run: Config.Ended is due
	spin        time.Duration
	stats       CoreStats
	last        CoreStats  // when it ended; readable once done is closed
	held        Throttle   // stands for Hold in Socket.paused
	resting     Throttle   // stands for Rest in Socket.paused
	fileBusy    int        // requests on files in the driver
	fileLine    []*File    // files that wait for room in the driver
	reads       readBudget // memory for reads, and the reads that wait for it
	turnOf      fileTurn   // the requests on files that the next system call may still begin
	fileDone    opLine     // requests that have ended; their Done is due
	commits     []*commit  // files to be looked at before the next system call
	staying     int        // files that do not keep a core which is being removed
}

// entry is one slot of the table that routes completions.
type entry struct {
	gen uint32
	of  completer // nil: free
}

// completer is a *Socket, a *Listener, a *FileOp, or a *File, whose completions are those of
// its syncs.
type completer interface {
	complete(c *Core, cp *uring.Completion)
}

// ErrStopped is the error of work for a core that has stopped or failed.
var ErrStopped = errors.New("loop: core stopped")

// Load is the number of connections that the core owns, open or not, plus the number
// on their way to it. Any goroutine.
func (c *Core) Load() int { return int(c.load.Load()) }

// AddLoad counts n connections more on the core, or fewer: a core that is being
// drained lives until none is left. Any goroutine.
func (c *Core) AddLoad(n int) { c.load.Add(int64(n)) }

// Expect counts n connections more that are on their way to the core and that
// AddLoad does not count, or fewer. Any goroutine.
func (c *Core) Expect(n int) { c.expected.Add(int64(n)) }

// Now is the core's clock, read once per turn. On the core.
func (c *Core) Now() time.Duration {
	c.assertOwner()
	return c.now
}

// Config is the configuration of the plane, with defaults filled in. It must not be
// changed. Any goroutine.
func (c *Core) Config() *Config { return c.cfg }

// ID is the core's number, from 0.
func (c *Core) ID() int { return c.id }

// Gone says that the core has ended, so that tasks run elsewhere. Any goroutine.
func (c *Core) Gone() bool { return c.closed.Load() }

// open opens the driver in the calling thread.
func (c *Core) open() error {
	drv, err := c.cfg.Open(c.id)
	if err != nil {
		return fmt.Errorf("core %d: %w", c.id, err)
	}
	hot, err := c.cfg.Map(ReceiveBytes)
	if err != nil {
		_ = drv.CloseDriver()
		return fmt.Errorf("core %d: receive buffer: %w", c.id, err)
	}
	c.drv, c.hot, c.info = drv, hot, drv.Info()
	c.pool.keep, c.pool.mapped = c.cfg.PoolKeep, c.cfg.Map
	c.reads.core, c.reads.press.Fire = c, c.reads.ask
	c.reads.limit, c.reads.share = c.cfg.FileBounds()
	c.trimmer.Fire = func(c *Core, now time.Duration) {
		pool, vecs := c.pool.trim(!c.trimming), c.vecs.trim(!c.trimming)
		if c.trimming = pool || vecs; c.trimming {
			c.timers.arm(&c.trimmer, now+trimStep)
		}
	}
	c.chooseReceive()
	c.now = c.cfg.Now()
	c.turnOf.begin(c)
	if c.cfg.Started != nil {
		if err := c.cfg.Started(c); err != nil {
			c.close()
			return fmt.Errorf("core %d: %w", c.id, err)
		}
	}
	c.started = true
	return nil
}

// run is the core's thread.
func (c *Core) run(opened chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the core
	defer close(c.done)
	ended := false
	defer func() {
		if !ended {
			c.aborted(recover())
		}
	}()
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("messenger", c.cfg.Name, "core", strconv.Itoa(c.id))))
	if c.cfg.Pin {
		if err := c.pin(); err != nil {
			c.cfg.Logger.Warn("core not pinned", "core", c.id, "err", err)
		}
	}
	if err := uring.SharpTimers(); err != nil {
		c.cfg.Logger.Debug("timer slack not set", "core", c.id, "err", err)
	}
	c.tid.Store(int32(unix.Gettid()))
	c.vitals.goroutine = goroutineHead()
	if err := c.open(); err != nil {
		ended = true
		opened <- err
		return
	}
	opened <- nil
	for !c.stopping.Load() {
		if err := c.turn(true); err != nil {
			c.fail(err) // it stops
		}
		if c.draining.Load() && c.left() {
			c.stopping.Store(true)
		}
	}
	c.close()
	ended = true
}

// errExited is the failure of a core after a callback ended its thread.
var errExited = errors.New("a callback ended the core's goroutine (runtime.Goexit)")

// aborted is called when a callback of the user did not return. A panic ends the
// process like any other: after half of a turn the state of the core cannot be
// trusted. A Goexit would end the core silently: the core fails instead.
func (c *Core) aborted(panicked any) {
	if panicked != nil {
		panic(panicked)
	}
	if !c.started { // Plane.start tells of it
		if c.drv != nil {
			c.close()
		}
		return
	}
	c.fail(fmt.Errorf("core %d: %w", c.id, errExited))
	c.deliver() // connections that nobody has yet, for example
	c.close()
}

// pin binds the thread to one of the CPUs of the process.
func (c *Core) pin() error {
	cpus, err := uring.AllowedCPUs()
	if err != nil || len(cpus) == 0 {
		return err
	}
	return uring.PinThread(cpus[c.id%len(cpus)])
}

// turn does one round: tasks, timers, writes, one system call, completions. block
// lets it sleep in that call until there is work. Only the core's thread, or its
// stepper.
func (c *Core) turn(block bool) error {
	c.assertOwner()
	c.runTasks()
	c.timers.expire(c, c.now, timersPerTurn)
	c.flushPending()
	c.commitFiles()
	c.reads.serve()
	completions, err := c.sleep(block)
	if err != nil {
		return fmt.Errorf("core %d: %w", c.id, err)
	}
	c.now, c.turnFrom = c.cfg.Now(), c.stats.FramesIn
	c.stats.Turns++
	c.vitals.turns.Store(c.stats.Turns)
	c.turnFiles()
	c.got = completions
	c.deliver()
	c.serveReadable()
	c.finishFiles()
	c.takeReturned()
	if (c.pool.excess() || len(c.vecs.free) > spareVecs) && !c.trimmer.Armed() {
		c.timers.arm(&c.trimmer, c.now+trimEvery)
	}
	return nil
}

// runTasks runs all tasks of the mailbox, and then the tasks that these have posted, such as
// messages to send. In a simulation, which chooses the order of events, it runs one.
func (c *Core) runTasks() {
	for range 2 {
		if c.todo == nil {
			c.todo = c.box.take()
		}
		for t := c.todo; t != nil; t = c.todo {
			c.todo = t.next
			t.next = nil
			t.run(c)
			if c.cfg.Stepped != nil {
				return
			}
		}
	}
}

// busy says whether the core has work that no completion announces.
func (c *Core) busy() bool {
	return c.todo != nil || !c.box.empty() || len(c.pending) > 0 || c.waitsToRead() || c.regains() ||
		c.fileDone.first != nil || len(c.commits) > 0 || len(c.turnOf.line) > 0 || c.reads.busy()
}

// sleep submits and collects. It sleeps only without work.
func (c *Core) sleep(block bool) ([]uring.Completion, error) {
	timeout := c.timeout(block)
	if c.owed || timeout == 0 {
		// A call that does not wait reports that the kernel has taken the write. To sleep
		// would keep its memory until some other event, and a timer that bounds this by a
		// millisecond costs more than the call.
		c.owed = false
		if got, err := c.drv.Wait(0); timeout == 0 || len(got) > 0 || err != nil {
			return got, err
		}
	}
	if c.spin > 0 || c.cfg.Spin > 0 {
		if got, err := c.poll(timeout); len(got) > 0 || err != nil {
			return got, err
		}
		if !c.box.empty() || c.regains() {
			return nil, nil
		}
	}
	c.sleeping.Store(true)
	if !c.box.empty() || c.stopping.Load() || c.regains() {
		timeout = 0
	}
	got, err := c.drv.Wait(timeout)
	c.sleeping.Store(false)
	return got, err
}

// timeout bounds the sleep of Wait.
func (c *Core) timeout(block bool) time.Duration {
	if !block || c.busy() || c.draining.Load() && c.left() {
		return 0
	}
	when, ok := c.timers.next()
	if !ok {
		return -1
	}
	return max(when-c.now, 0)
}

// poll looks for completions, tasks and returned objects without sleeping. A poll that finds
// nothing halves the time of the next one, a poll that finds something sets it
// back to Config.Spin.
func (c *Core) poll(limit time.Duration) ([]uring.Completion, error) {
	budget := max(c.spin, c.cfg.Spin/64)
	if limit > 0 {
		budget = min(budget, limit)
	}
	for end := c.cfg.Now() + budget; ; {
		got, err := c.drv.Wait(0)
		if len(got) > 0 || err != nil || !c.box.empty() || c.regains() {
			c.spin = c.cfg.Spin
			c.stats.SpinHits++
			return got, err
		}
		if c.cfg.Now() >= end {
			c.spin = budget / 2
			c.stats.SpinMisses++
			return nil, nil
		}
	}
}

// deliver routes the completions of this turn. Those that a callback leaves by ending its goroutine
// stay in got.
func (c *Core) deliver() {
	for len(c.got) > 0 {
		cp := &c.got[0]
		c.got = c.got[1:]
		c.complete(cp)
	}
}

// complete routes one completion to the socket, listener or file that it belongs to.
func (c *Core) complete(cp *uring.Completion) {
	slot, gen := uint32(cp.User), uint32(cp.User>>32)
	if int(slot) >= len(c.entries) || c.entries[slot].gen != gen {
		c.stats.Stray++
		if cp.Kind == uring.KindReceive && cp.Buf != 0 {
			c.drv.Release(cp.Buf)
		}
		// Of a listener that a broken driver has lost: others close when their
		// accept has ended.
		if cp.Kind == uring.KindAccept && cp.Res >= 0 {
			if s, err := c.drv.Adopt(int(cp.Res)); err == nil {
				c.drv.Close(s)
			} else {
				c.cfg.CloseFD(int(cp.Res))
			}
		}
		return
	}
	c.entries[slot].of.complete(c, cp)
}

// slot gives of an entry, and returns the user word that names it.
func (c *Core) slot(of completer) uint64 {
	if n := len(c.freeSlot); n > 0 {
		i := c.freeSlot[n-1]
		c.freeSlot = c.freeSlot[:n-1]
		e := &c.entries[i]
		e.of = of
		return uint64(e.gen)<<32 | uint64(i)
	}
	c.entries = append(c.entries, entry{1, of})
	return 1<<32 | uint64(len(c.entries)-1)
}

// freeEntry frees a slot; its user word names nothing from now on.
func (c *Core) freeEntry(user uint64) {
	i := uint32(user)
	e := &c.entries[i]
	e.of = nil
	e.gen++
	if e.gen == 0 {
		e.gen = 1
	}
	c.freeSlot = append(c.freeSlot, i)
}

// close ends the core: sockets, driver, memory.
func (c *Core) close() {
	c.endAll(ErrStopped)
	// Tasks of the mailbox run once more: callers may wait for them.
	for c.todo != nil || !c.box.empty() {
		c.runTasks()
	}
	c.endAll(ErrStopped) // sockets and files that these tasks have opened
	if c.started && c.cfg.Ended != nil {
		c.cfg.Ended(c)
	}
	c.last = c.Snapshot()
	err := c.drv.CloseDriver()
	if err != nil {
		c.cfg.Logger.Warn("driver closed with an error", "core", c.id, "err", err)
	}
	// The kernel uses none of the memory any more, and it is freed; or it may
	// still use some (EBUSY), which is then never used again.
	kept := errors.Is(err, unix.EBUSY)
	c.pool.frozen = kept
	c.abandonFiles(kept)
	for i := range c.entries {
		if s, ok := c.entries[i].of.(*Socket); ok && !kept {
			s.tx.release(c)
		}
	}
	if !kept {
		c.vecs.shrink(0)
		_ = c.hot.Unmap()
	}
	c.tid.Store(0) // from here on the goroutine that holds the lock is the owner
	c.afterEnd.Lock()
	defer c.afterEnd.Unlock()
	c.closed.Store(true)
	c.pool.keep, c.pool.peaks, c.pool.files = 0, [2]int64{}, nil
	c.takeReturned()
	if !kept { // else a write in flight keeps its slab, and the pool lent buffers
		c.drainPool()
	}
	if !c.box.empty() {
		go c.runLate()
	}
}

// drainPool unmaps the pool of a core that is gone when the last loan of
// its users is back.
func (c *Core) drainPool() {
	if c.pool.inUse == 0 {
		c.pool.drain()
	}
}

// stepper is a core without a thread, as its simulator sees it (Config.Stepped).
type stepper Core

func (s *stepper) Turn() error {
	c := (*Core)(s)
	defer c.stepped.Add(1)
	if c.closed.Load() {
		return nil
	}
	c.sleeping.Store(false)
	// What runs in a turn runs on the core, as it does on a thread of its own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.tid.Store(int32(unix.Gettid()))
	defer c.tid.Store(0)
	if c.endInTurn && c.stopping.Load() {
		c.end()
		return nil
	}
	if err := c.turn(false); err != nil {
		return err
	}
	if c.draining.Load() && c.left() {
		c.stopping.Store(true)
		c.end()
	}
	return nil
}

func (s *stepper) Busy() bool {
	c := (*Core)(s)
	defer c.stepped.Add(1)
	if c.busy() {
		return true
	}
	c.sleeping.Store(true) // later posts wake the driver
	return c.busy() || c.endInTurn && c.stopping.Load() && !c.closed.Load()
}

func (s *stepper) EndInTurn() { s.endInTurn = true }

func (s *stepper) Deadline() (when time.Duration, ok bool) { return s.timers.next() }
