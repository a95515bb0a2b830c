package resize

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrFailed: a core failed before it was ready.
var ErrFailed = errors.New("control: the core has failed")

// Messenger has the steps by which a messenger gets more cores of type C, or fewer. A Resizer
// never calls two of them for the same core at the same time, except Unsteer and Evacuate,
// which it calls for a core that fails at any moment.
type Messenger[C any] interface {
	// Allowed is the reason why the cores must stay as they are, nil if they may
	// change.
	Allowed() error

	// Open starts one more core, which has nothing to do yet.
	Open() (C, error)
	// Listen has a core accept at all addresses, and puts it into the steering. It may
	// wait for another core.
	Listen(C) error

	// Broken says whether a core has failed. It is true before Failed is called.
	Broken(C) bool
	// Find is the core with a number.
	Find(number int) (C, error)
	// Retire has a core refuse new connections, and end when it has nothing any more.
	// It cannot be taken back.
	Retire(C) error
	// Unsteer has the steering bring no connection to a core any more. With forget the
	// core does not come back.
	Unsteer(core C, forget bool)
	// Evacuate has every connection leave for which Conn.Leaves says so, at Evacuation.
	Evacuate(C)
	// CloseListeners closes the listeners of a core, or gives them to others. It may
	// wait for another core.
	CloseListeners(C)
	// AwaitGone waits until a core that Retire has ended is gone. At the end of ctx it
	// closes what is left there and returns an error.
	AwaitGone(context.Context, C) error
}

// Resizer changes the cores of a messenger, one change at a time. It owns the lock of these
// changes (Exclusive). Any goroutine may use it.
type Resizer[C any] struct {
	Exclusive
	m Messenger[C]
}

// New makes one for a messenger that lives as long as over.
func New[C any](over context.Context, m Messenger[C]) *Resizer[C] {
	return &Resizer[C]{newExclusive(over), m}
}

// Add adds a core. If ctx ends before the core is ready, it is removed again, by
// itself if that has to wait.
func (r *Resizer[C]) Add(ctx context.Context) (core C, err error) {
	unlock, err := r.begin(ctx)
	if err != nil {
		return core, fmt.Errorf("add a core: %w", err)
	}
	opened, err := r.m.Open()
	if err != nil {
		unlock()
		return core, err
	}
	added := make(chan error, 1)
	var decided atomic.Bool // that the core stays, or that nobody waits for it any more
	go func() {
		defer unlock()
		added <- r.bring(ctx, opened, &decided)
	}()
	select {
	case err = <-added:
	case <-ctx.Done():
		if err = context.Cause(ctx); !decided.CompareAndSwap(false, true) {
			err = <-added
		}
	}
	if err != nil {
		return core, fmt.Errorf("add a core: %w", err)
	}
	return opened, nil
}

// begin waits for its turn, if the cores may change.
func (r *Resizer[C]) begin(ctx context.Context) (unlock func(), err error) {
	if unlock, err = r.Lock(ctx); err != nil {
		return nil, err
	}
	if err = r.m.Allowed(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// bring has a new core listen, or removes it.
func (r *Resizer[C]) bring(ctx context.Context, core C, decided *atomic.Bool) error {
	err := r.m.Listen(core)
	if r.m.Broken(core) {
		err = ErrFailed
	}
	if err == nil && !decided.CompareAndSwap(false, true) {
		err = context.Cause(ctx)
	}
	if err != nil {
		r.undo(core)
	}
	return err
}

// undo removes a core that could not be used.
func (r *Resizer[C]) undo(core C) {
	if r.m.Retire(core) == nil {
		r.leave(core, true)
		r.m.CloseListeners(core)
	} else if r.m.Broken(core) {
		r.leave(core, false) // Failed may have come before Listen
	}
}

// Remove takes a core out. When ctx ends, what is left on the core faults, and the
// removal goes on by itself.
func (r *Resizer[C]) Remove(ctx context.Context, number int) error {
	unlock, err := r.begin(ctx)
	if err != nil {
		return fmt.Errorf("remove core %d: %w", number, err)
	}
	core, err := r.m.Find(number)
	if err == nil {
		err = r.m.Retire(core)
	}
	if err != nil {
		unlock()
		return fmt.Errorf("remove core %d: %w", number, err)
	}
	r.leave(core, true)

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer unlock() // a stuck core keeps its listeners, and nobody else may move them
		r.m.CloseListeners(core)
	}()
	if err := r.m.AwaitGone(ctx, core); err != nil {
		return err
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done(): // a core that is to take a listener over is stuck
		return fmt.Errorf("remove core %d: %w", number, context.Cause(ctx))
	}
}

// leave has the connections of a core go to others.
func (r *Resizer[C]) leave(core C, forget bool) {
	r.m.Unsteer(core, forget)
	r.m.Evacuate(core)
}

// Failed has the connections of a failed core go to others. An addition or a removal of the
// core may be under way.
func (r *Resizer[C]) Failed(core C) { r.leave(core, false) }

// Conn has the facts about a connection that decide whether it leaves its core.
type Conn struct {
	Here     bool // the core owns it
	Boarding bool // an attempt has a socket for it, or is about to, and brings it to that socket's core
	Underway bool // it is about to leave for another core, or to arrive at one
	Closing  bool
	CoreRuns bool // the core can be given work
}

// Moment is the occasion on which a connection may leave its core.
type Moment uint8

// The moments.
const (
	Evacuation Moment = iota // all connections are asked: the core is being removed, or has failed
	StepEnded                // its session has opened or faulted
	Arrival                  // it has come from another core, or goes on after it stood still
)

// Leaves says whether a connection is to leave the core now.
//
// A connection that is boarding follows when its handshake ends, which is a step. A connection
// that is under way stays as it is: a second move would break the TCP connection that the
// first one waits for. At any moment but an evacuation a core that runs keeps its
// connections.
func (c Conn) Leaves(at Moment) bool {
	if !c.Here || c.Underway || c.Closing {
		return false
	}
	switch at {
	case Evacuation:
		return !c.Boarding
	case StepEnded:
		return !c.CoreRuns
	default:
		return !c.Boarding && !c.CoreRuns
	}
}

// Exclusive lets one goroutine at a time change the cores of a messenger, or the listeners
// and sessions that depend on them. Its holder may do I/O, and give it to another goroutine.
// Any goroutine may use it.
type Exclusive struct {
	held chan struct{} // capacity 1
	over context.Context
}

// newExclusive makes one for a messenger that lives as long as over.
func newExclusive(over context.Context) Exclusive {
	return Exclusive{held: make(chan struct{}, 1), over: over}
}

// Lock waits for its turn, but not beyond ctx, nor beyond the messenger's end; the
// error is the cause.
func (e Exclusive) Lock(ctx context.Context) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case e.held <- struct{}{}:
		return func() { <-e.held }, nil
	case <-e.over.Done():
		return nil, context.Cause(e.over)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
