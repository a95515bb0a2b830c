package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Errors of AddCore and RemoveCore.
var (
	// ErrNoCore: the plane has no such core.
	ErrNoCore = errors.New("loop: no such core")
	// ErrLastCore: no other core is there to take over.
	ErrLastCore = errors.New("loop: the last core cannot be removed")
	// ErrCoreRemoved is the fault of a connection that could not leave a
	// removed core in time.
	ErrCoreRemoved = errors.New("loop: core removed")
)

// CoreState says whether a core can be given work.
type CoreState uint8

// The states of a core. It begins running; nothing leads back there.
const (
	CoreRunning  CoreState = iota
	CoreDraining           // being removed: its connections leave, none is added
	CoreFailed             // its driver broke: the thread is gone, its connections have faulted
	CoreStopped            // removed, or the plane is closed
)

func (s CoreState) String() string {
	names := [...]string{"running", "draining", "failed", "stopped"}
	if int(s) >= len(names) {
		return "invalid"
	}
	return names[s]
}

// State says whether the core can be given work. Any goroutine.
func (c *Core) State() CoreState {
	switch {
	case c.vitals.failure.Load() != nil:
		return CoreFailed
	case c.stopping.Load():
		return CoreStopped
	case c.draining.Load():
		return CoreDraining
	}
	return CoreRunning
}

// AddCore starts one more core, with the lowest number that is free, and waits
// until it has opened its driver. It has no listener yet. On a core it fails with
// ErrOnCore.
func (p *Plane) AddCore() (*Core, error) {
	if p.OnCore() {
		return nil, fmt.Errorf("add a core: %w", ErrOnCore)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.All()
	switch {
	case p.closed:
		return nil, ErrStopped
	case len(all) >= maxCores:
		return nil, fmt.Errorf("add a core to %d: %w", len(all), errManyCores)
	}
	id := 0
	for id < len(all) && all[id].id == id {
		id++
	}
	c, err := p.start(id)
	if err != nil {
		return nil, fmt.Errorf("add a core: %w", err)
	}
	more := slices.Insert(slices.Clone(all), id, c)
	p.cores.Store(&more)
	p.cfg.Logger.Info("core added", "core", id, "cores", len(more))
	return c, nil
}

// Drain begins to take a core out of service: it refuses to dial, and its
// thread ends as soon as nothing is left on it: no listener, no socket, no file but
// a CoreFile, and nothing that AddLoad counts. The caller moves the sockets away (Detach) and
// the listeners (Listener.Move, Close), and closes the files. It fails with ErrLastCore if no other core
// runs. Draining twice is no error. Any goroutine.
func (p *Plane) Drain(c *Core) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.All()
	if !slices.Contains(all, c) {
		return ErrNoCore
	}
	if p.closed {
		return ErrStopped
	}
	if c.draining.Load() {
		return nil
	}
	if p.successorCore(c) == nil {
		return ErrLastCore
	}
	c.draining.Store(true)
	p.reaper.Add(1)
	go p.reap(c)
	_ = c.Do(func(*Core) {}) // the core checks whether it is empty; one that has failed does not have to
	return nil
}

// successorCore is the successor of core c: the running core with the least Load besides
// c, nil if there is none.
func (p *Plane) successorCore(c *Core) *Core {
	var best *Core
	for _, o := range p.All() {
		if o != c && o.State() == CoreRunning && (best == nil || o.Load() < best.Load()) {
			best = o
		}
	}
	return best
}

// reap takes a core that has ended out of the list.
func (p *Plane) reap(c *Core) {
	defer p.reaper.Done()
	<-c.done
	p.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(p.All()), func(o *Core) bool { return o == c })
	if !p.closed {
		p.cores.Store(&rest)
	}
	p.mu.Unlock()
	p.cfg.Logger.Info("core removed", "core", c.id, "cores", len(rest))
	close(c.reaped)
}

// RemoveCore is Drain and AwaitDrained. On a core it fails with ErrOnCore.
func (p *Plane) RemoveCore(ctx context.Context, c *Core) error {
	if p.OnCore() {
		return fmt.Errorf("remove core %d: %w", c.id, ErrOnCore)
	}
	if err := p.Drain(c); err != nil {
		return fmt.Errorf("remove core %d: %w", c.id, err)
	}
	return p.AwaitDrained(ctx, c)
}

// AwaitDrained waits until a core for which Drain succeeded is gone: its thread
// has ended, its driver is closed and its memory is returned, but for frames
// that users still hold. A core that has failed is only taken out of the list.
//
// When ctx ends first the connections and files that are still on it are closed
// (ErrCoreRemoved), so that the rest can leave, unless it is stuck; the
// error of ctx is returned, and the rest happens by itself. On a core it fails with
// ErrOnCore.
func (p *Plane) AwaitDrained(ctx context.Context, c *Core) error {
	if p.OnCore() {
		return fmt.Errorf("remove core %d: %w", c.id, ErrOnCore)
	}
	select {
	case <-c.reaped:
		return nil
	case <-ctx.Done():
	}
	_ = c.Do(func(c *Core) { c.faultAll(ErrCoreRemoved) }) // an error is its end
	return fmt.Errorf("remove core %d: %w", c.id, context.Cause(ctx))
}

// left says that a core which is being drained has nothing any more.
func (c *Core) left() bool {
	used := len(c.entries) - len(c.freeSlot)
	// The expected first: a connection counts in the load before it leaves them.
	return c.expected.Load() <= 0 && c.load.Load() <= 0 && used == c.staying && c.stats.Files.Ops == 0 && !c.busy()
}

// faultAll ends every socket and file.
func (c *Core) faultAll(err error) {
	for i := range c.entries {
		switch of := c.entries[i].of.(type) {
		case *Socket:
			of.Fault(err)
		case *File:
			of.end(err)
		}
	}
}

// endAll ends every socket, file and listener.
func (c *Core) endAll(err error) {
	c.faultAll(err)
	for i := range c.entries {
		if l, ok := c.entries[i].of.(*Listener); ok {
			l.closeOn(c)
		}
	}
}

// fail ends a core whose driver broke: its sockets fault, and its listeners go to
// another core at once. Connections that AddLoad counts stay until their owner moves
// them: tasks of a core that is gone run on goroutines, one at a time.
func (c *Core) fail(err error) {
	c.cfg.Logger.Error("core failed", "core", c.id, "err", err)
	text := err.Error()
	c.vitals.failure.Store(&text)
	c.stopping.Store(true)
	// The sockets first: a listener that moves needs a descriptor, and they free some.
	c.faultAll(fmt.Errorf("%w: %w", ErrStopped, err))
	for i := range c.entries {
		if l, ok := c.entries[i].of.(*Listener); ok {
			l.moveOrClose(c)
		}
	}
	c.endAll(fmt.Errorf("%w: %w", ErrStopped, err))
	select {
	case c.plane.fails <- err:
	default: // nobody reads them
	}
	if c.cfg.Failed != nil {
		c.cfg.Failed(c, err)
	}
}

// moveOrClose gives the listener of a failing core to another one. Connections in the
// kernel's queue stay there.
func (l *Listener) moveOrClose(c *Core) {
	to := c.plane.successorCore(c)
	if to == nil || !l.open || l.closing {
		return
	}
	// The broken driver keeps its own descriptor, and closes it.
	fd, err := unix.FcntlInt(uintptr(l.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		l.lost(c, err)
		return
	}
	l.departed(ErrStopped)
	l.leave(c)
	l.shut(c)
	l.hand(to, fd, nil)
}

// end ends a core without a thread, once. The caller calls it after the last step, which
// another goroutine has made.
func (c *Core) end() {
	c.stepped.Load()
	if !c.closed.Load() {
		c.close()
		close(c.done)
	}
}
