package dataplane

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	// hotBytes is the receive buffer that all connections of a core share:
	// small enough to stay in the L2 cache.
	hotBytes = 64 << 10
	// timersPerTurn bounds the timers that one turn fires.
	timersPerTurn = 256
	// slabBytes is what one write of a connection can hold besides gathered
	// payload: heads, small payloads, epilogues.
	slabBytes = 64 << 10
	// vecEntries bounds the pieces of one write.
	vecEntries = 256
)

// Core is one OS thread with one driver and everything that lives on it:
// listeners, sockets, the I/O handlers that own the open ones, buffers and
// timers. Nothing of that is touched by any other goroutine; they hand over
// tasks through the mailbox.
type Core struct {
	id    int
	plane *Plane
	cfg   *Config
	box   mailbox
	// sleeping is set while the core may be blocked in Wait with an empty
	// mailbox: then the first that pushes something wakes it.
	sleeping atomic.Bool
	draining atomic.Bool // to stop as soon as nothing is left
	stopping atomic.Bool
	done     chan struct{} // closed when the thread is gone
	reaped   chan struct{} // closed when a removed core is out of the plane's list
	returns  atomic.Pointer[Message]
	vitals   vitals
	load     atomic.Int64 // handlers that it owns, and those that migrate to it
	expected atomic.Int64 // handlers that are on their way by Move
	// late guards the pool once the core is gone: messages that users still
	// held then come back by any goroutine.
	late   sync.Mutex
	after  sync.Mutex // held while tasks of a core that is gone run
	closed atomic.Bool

	// The rest is the core's own.
	drv      uring.Driver
	info     uring.Info
	receive  ReceiveMode
	tid      int
	now      time.Duration
	entries  []entry // sockets and listeners by slot
	freeSlot []uint32
	dirty    []*Handler // something to send, swept once per turn
	sweeping []*Handler // the list that is being swept
	todo     *task      // taken out of the mailbox, not run yet
	owing    int        // quiet writes whose memory somebody waits for
	readable []*socket  // budget used up, served again in the next turn
	reading  []*socket  // the list that is being served
	timers   timers
	pool     pool
	trimmer  timer // while the pool holds more than it may keep for ever
	hot      *uring.Memory
	vecs     []*uring.Vec
	messages *Message // free received messages
	spin     time.Duration
	stats    CoreStats
	timing   bool          // this turn is timed
	lapAt    time.Duration // when its last part ended
	held     Throttle      // stands for a break point in socket.paused
	scratch  [8]byte       // payload of a control frame under construction
	header   [frame.MessageHeaderSize]byte
}

// entry is one slot of the table that completions are routed by.
type entry struct {
	gen  uint32
	sock *socket
	lst  *Listener
}

// ErrStopped is returned for work that is given to a core that has stopped or
// failed.
var ErrStopped = errors.New("dataplane: core stopped")

// Load is the number of handlers that the core owns, open or not, and of those
// that are on their way to it. Any goroutine.
func (c *Core) Load() int { return int(c.load.Load()) }

// ID is the core's number, from 0.
func (c *Core) ID() int { return c.id }

// Do runs f on the core soon. Any goroutine may call it; it does not wait. It
// returns ErrStopped, and f never runs, once the core has stopped.
func (c *Core) Do(f func(c *Core)) error {
	if c.stopping.Load() {
		return ErrStopped
	}
	c.post(&task{run: f, live: true})
	return nil
}

// call runs f on the core and waits for it. Any goroutine but the core's.
func (c *Core) call(f func(c *Core)) error {
	ran := make(chan struct{})
	if err := c.Do(func(c *Core) { f(c); close(ran) }); err != nil {
		<-c.done // nothing of the caller's is in use by the core any more
		return err
	}
	select {
	case <-ran:
		return nil
	case <-c.done:
	}
	select {
	case <-ran: // in the core's last moments
		return nil
	default:
		return ErrStopped
	}
}

// post hands t to the core and wakes it if it sleeps. Any goroutine.
func (c *Core) post(t *task) {
	c.box.push(t)
	if c.closed.Load() {
		go c.runLate()
		return
	}
	if c.sleeping.Load() && c.sleeping.CompareAndSwap(true, false) {
		c.drv.Wake()
	}
}

// runLate runs what was posted to a core that is gone: handlers that it owned
// close, or move to another core.
func (c *Core) runLate() {
	c.after.Lock()
	defer c.after.Unlock()
	for t := c.box.take(); t != nil; {
		next := t.next
		t.next = nil
		if !t.live {
			t.run(c)
		}
		t = next
	}
}

// open opens the driver in the calling thread.
func (c *Core) open() error {
	drv, err := c.cfg.Open(c.id)
	if err != nil {
		return fmt.Errorf("core %d: %w", c.id, err)
	}
	hot, err := uring.Map(hotBytes)
	if err != nil {
		_ = drv.CloseDriver()
		return fmt.Errorf("core %d: receive buffer: %w", c.id, err)
	}
	c.drv, c.hot, c.info = drv, hot, drv.Info()
	c.pool.keep = c.cfg.PoolKeep
	c.trimmer.fire = func(c *Core, now time.Duration) {
		if c.pool.trim() {
			c.timers.arm(&c.trimmer, now+trimEvery)
		}
	}
	c.receive = c.cfg.Receive
	if c.receive == ReceiveAuto || !c.info.Receive {
		c.receive = ReceiveReady
	}
	c.now = c.cfg.Now()
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
	if c.cfg.Pin {
		if err := c.pin(); err != nil {
			c.cfg.Logger.Warn("core not pinned", "core", c.id, "err", err)
		}
	}
	if err := uring.SharpTimers(); err != nil {
		c.cfg.Logger.Debug("timer slack not set", "core", c.id, "err", err)
	}
	if err := c.open(); err != nil {
		ended = true
		opened <- err
		return
	}
	c.tid = unix.Gettid()
	c.vitals.goroutine = goroutineHead()
	opened <- nil
	for !c.stopping.Load() {
		if err := c.Turn(true); err != nil {
			c.fail(err)
			break
		}
		if c.draining.Load() && c.left() {
			c.stopping.Store(true)
		}
	}
	c.close()
	ended = true
}

// errExited is the failure of a core whose thread a callback has ended.
var errExited = errors.New("a callback ended the core's goroutine (runtime.Goexit)")

// aborted is called when a callback of the user did not return. A panic is the
// user's, and ends the process as any other: with half of a turn done nothing
// that the core owns can be trusted. A Goexit would be a core that is silently
// dead: it fails instead.
func (c *Core) aborted(panicked any) {
	if panicked != nil {
		panic(panicked)
	}
	c.fail(fmt.Errorf("core %d: %w", c.id, errExited))
	c.close()
}

// pin binds the thread to a CPU of its own among those that the process may
// use.
func (c *Core) pin() error {
	cpus, err := uring.AllowedCPUs()
	if err != nil || len(cpus) == 0 {
		return err
	}
	return uring.PinThread(cpus[c.id%len(cpus)])
}

// Turn does one round: tasks, timers, what is to be sent, one system call,
// what came back. block lets it sleep in that call until there is work. Only
// the core's thread, or the caller that runs a Manual plane.
func (c *Core) Turn(block bool) error {
	if c.cfg.Manual && c.closed.Load() {
		return nil
	}
	c.beginLaps()
	c.runTasks()
	c.timers.expire(c, c.now, timersPerTurn)
	if c.timing {
		c.lap(&c.stats.Spent.Tasks)
	}
	c.sweepDirty()
	if c.timing {
		c.lap(&c.stats.Spent.Send)
	}
	completions, err := c.wait(block)
	if err != nil {
		return fmt.Errorf("core %d: %w", c.id, err)
	}
	if c.timing {
		c.lap(&c.stats.Spent.Wait)
	}
	c.now = c.cfg.Now()
	c.stats.Turns++
	c.vitals.turns.Store(c.stats.Turns)
	for i := range completions {
		c.complete(&completions[i])
	}
	c.serveReadable()
	c.takeReturned()
	if c.pool.kept > c.pool.keep && !c.trimmer.armed() {
		c.timers.arm(&c.trimmer, c.now+trimEvery)
	}
	if c.timing {
		c.lap(&c.stats.Spent.Receive)
	}
	if c.cfg.Manual && c.draining.Load() && c.left() {
		c.stopping.Store(true)
		c.end()
	}
	return nil
}

// runTasks runs what is in the mailbox: all of it, or one task where a
// simulation decides what comes next.
func (c *Core) runTasks() {
	if c.todo == nil {
		c.todo = c.box.take()
	}
	for t := c.todo; t != nil; t = c.todo {
		c.todo = t.next
		t.next = nil
		t.run(c)
		if c.cfg.Manual {
			return
		}
	}
}

// Busy says whether the core has something to do that no completion would tell
// of. Only for the caller that runs a Manual plane.
func (c *Core) Busy() bool {
	return c.todo != nil || !c.box.empty() || len(c.dirty) > 0 || len(c.readable) > 0
}

// Deadline is when the earliest timer is due, on the clock of Config.Now. Only
// for the caller that runs a Manual plane.
func (c *Core) Deadline() (when time.Duration, ok bool) { return c.timers.next() }

// wait submits and collects, sleeping only if there is nothing left to do.
func (c *Core) wait(block bool) ([]uring.Completion, error) {
	timeout := c.timeout(block)
	if timeout == 0 {
		return c.drv.Wait(0)
	}
	if c.spin > 0 || c.cfg.Spin > 0 {
		if got, err := c.poll(timeout); len(got) > 0 || err != nil {
			return got, err
		}
		if !c.box.empty() {
			return nil, nil
		}
	}
	c.sleeping.Store(true)
	if !c.box.empty() || c.stopping.Load() {
		timeout = 0
	}
	got, err := c.drv.Wait(timeout)
	c.sleeping.Store(false)
	return got, err
}

// timeout is how long Wait may sleep.
func (c *Core) timeout(block bool) time.Duration {
	if !block || c.Busy() || c.draining.Load() && c.left() {
		return 0
	}
	when, ok := c.timers.next()
	switch {
	case ok && c.owing > 0:
		return min(max(when-c.now, 0), owedFor)
	case ok:
		return max(when-c.now, 0)
	case c.owing > 0:
		return owedFor
	}
	return -1
}

// poll looks for completions and tasks without sleeping, for as long as that
// has lately paid: a fruitless round halves the time, a fruitful one brings it
// back.
func (c *Core) poll(limit time.Duration) ([]uring.Completion, error) {
	budget := max(c.spin, c.cfg.Spin/64)
	if limit > 0 {
		budget = min(budget, limit)
	}
	for end := c.cfg.Now() + budget; ; {
		got, err := c.drv.Wait(0)
		if len(got) > 0 || err != nil || !c.box.empty() {
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

// complete routes one completion to the socket or listener that it belongs to.
func (c *Core) complete(cp *uring.Completion) {
	slot, gen := uint32(cp.User), uint32(cp.User>>32)
	if int(slot) >= len(c.entries) || c.entries[slot].gen != gen {
		c.stats.Stray++
		if cp.Kind == uring.KindReceive && cp.Buf != 0 {
			c.drv.Release(cp.Buf)
		}
		if cp.Kind == uring.KindAccept && cp.Res >= 0 {
			if s, err := c.drv.Adopt(int(cp.Res)); err == nil {
				c.drv.Close(s)
			} else {
				_ = unix.Close(int(cp.Res))
			}
		}
		return
	}
	if e := &c.entries[slot]; e.lst != nil {
		e.lst.complete(c, cp)
	} else {
		e.sock.complete(cp)
	}
}

// slot finds a free entry and returns it with the user word that names it.
func (c *Core) slot() (*entry, uint64) {
	if n := len(c.freeSlot); n > 0 {
		i := c.freeSlot[n-1]
		c.freeSlot = c.freeSlot[:n-1]
		e := &c.entries[i]
		return e, uint64(e.gen)<<32 | uint64(i)
	}
	c.entries = append(c.entries, entry{gen: 1})
	i := len(c.entries) - 1
	return &c.entries[i], 1<<32 | uint64(i)
}

// freeEntry recycles a slot; its user word is dead from now on.
func (c *Core) freeEntry(user uint64) {
	i := uint32(user)
	e := &c.entries[i]
	e.sock, e.lst = nil, nil
	e.gen++
	if e.gen == 0 {
		e.gen = 1
	}
	c.freeSlot = append(c.freeSlot, i)
}

// assertOwner panics in invariant builds if the caller is not the core.
func (c *Core) assertOwner() {
	if invariants.Enabled && c.tid != 0 {
		invariants.Check(unix.Gettid() == c.tid, "owner-only call from another thread")
	}
}

// vec lends a gather list.
func (c *Core) vec() (*uring.Vec, error) {
	if n := len(c.vecs); n > 0 {
		v := c.vecs[n-1]
		c.vecs = c.vecs[:n-1]
		return v, nil
	}
	return uring.NewVec(vecEntries)
}

func (c *Core) putVec(v *uring.Vec) {
	v.Reset()
	c.vecs = append(c.vecs, v)
}

// message lends a received message with one reference.
func (c *Core) message() *Message {
	m := c.messages
	if m == nil {
		return &Message{home: c}
	}
	c.messages = m.next
	m.next = nil
	return m
}

// recycle takes a received message back, on the core.
func (c *Core) recycle(m *Message) {
	if m.buf != nil {
		c.pool.put(m.buf)
	}
	*m = Message{home: c, next: c.messages}
	c.messages = m
}

// returned takes a received message back from any goroutine; the core picks
// it up in its next turn.
func (c *Core) returned(m *Message) {
	if c.closed.Load() {
		c.late.Lock()
		defer c.late.Unlock()
		c.recycle(m)
		c.drainPool()
		return
	}
	for {
		old := c.returns.Load()
		m.next = old
		if c.returns.CompareAndSwap(old, m) {
			break
		}
	}
	if c.closed.Load() { // in the meantime
		c.late.Lock()
		defer c.late.Unlock()
		c.takeReturned()
		c.drainPool()
	}
}

func (c *Core) takeReturned() {
	if c.returns.Load() == nil {
		return
	}
	for m := c.returns.Swap(nil); m != nil; {
		next := m.next
		c.recycle(m)
		m = next
	}
}

// close ends the core: sockets, driver, memory.
func (c *Core) close() {
	c.endAll(ErrStopped)
	// Tasks that are here already run once more: somebody may wait for them.
	for c.todo != nil || !c.box.empty() {
		c.runTasks()
	}
	c.endAll(ErrStopped) // what they have opened
	err := c.drv.CloseDriver()
	if err != nil {
		c.cfg.Logger.Warn("driver closed with an error", "core", c.id, "err", err)
	}
	// The kernel has let go of everything, and so do we; or it says that it has
	// not (EBUSY), and what it may still touch is never used again.
	kept := errors.Is(err, unix.EBUSY)
	for i := range c.entries {
		if s := c.entries[i].sock; s != nil && !kept {
			s.releaseWrite()
		}
	}
	for _, v := range c.vecs {
		if !kept {
			v.Free()
		}
	}
	c.vecs = nil
	if !kept {
		_ = c.hot.Unmap()
	}
	c.tid = 0 // from here on whoever holds the lock is the owner
	c.late.Lock()
	defer c.late.Unlock()
	c.closed.Store(true)
	c.pool.keep, c.pool.peaks = 0, [2]int64{}
	c.takeReturned()
	if !kept { // else a write in flight keeps its slab, and the pool what is lent
		c.drainPool()
	}
	if !c.box.empty() {
		go c.runLate()
	}
}

// drainPool unmaps the pool of a core that is gone when the last message of
// its users is back.
func (c *Core) drainPool() {
	if c.pool.inUse == 0 {
		c.pool.drain()
	}
}
