package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Errors of AddCore and RemoveCore.
var (
	// ErrNoCore: there is no core of that number.
	ErrNoCore = dataplane.ErrNoCore
	// ErrLastCore: no other core runs that could take over.
	ErrLastCore = dataplane.ErrLastCore
	// ErrCoreFailed: the driver of a new core broke before the core was ready.
	ErrCoreFailed = resize.ErrFailed
)

// What happens when, and what is undone if something fails, is decided in package
// resize; cores_steps.go carries out its steps, cores_leave.go moves connections.

// AddCore starts one more core and returns its number, the lowest that is free.
// The core listens on all our addresses, has its place in the steering of new
// connections, and gets its share of those that we make. Connections that
// exist stay where they are.
//
// With the owner hint, peers reach the new core by the cookies that they get
// from here on. If no core had so high a number before, older cookies name
// cores of a smaller number of cores: their peers may come back to a core that
// does not have their session, which then moves there, as it does without
// hints.
//
// Messages in flight, connects and sessions do not notice. ctx bounds the wait
// for others that change the cores, and for a core that is stuck in a callback;
// with its error there is no further core in the end. Not for a dispatcher on a
// core.
func (m *Messenger) AddCore(ctx context.Context) (int, error) {
	core, err := m.resizing.Add(ctx)
	if err != nil {
		return -1, resizeError(err)
	}
	return core.ID(), nil
}

// RemoveCore takes a core out of service while everything goes on: no new
// connection is placed on it, its listeners are closed or served by another
// core, its connections move to the others, and its thread ends. It fails with
// ErrLastCore for the only core that runs.
//
// Connections move with their sockets, lossy ones too: nothing is lost, doubled
// or reordered, and the peer sees nothing. The user sees Dispatcher.Move and
// Moved. Handshakes that are under way end on the core first. No connect is
// refused: what waits at a listener moves to another one where the steering
// program does that; without, the listening socket stays open, and another core
// accepts from it until a core is added again.
//
// A connection leaves when its last write has ended, so a peer that does not
// read can hold up the removal. ctx bounds that: when it ends, what is left
// faults as if its TCP connection had broken (lossless sessions come back on
// another core, lossy ones are reset), the error of ctx is returned, and the
// removal goes on by itself, as soon as no callback of the core is stuck. It
// cannot be taken back.
//
// A core that has failed is removed in the same way; it has nothing any more.
// Pins to the core (PinPeer) end. Its number is the first to be used again.
// Not for a dispatcher on a core.
func (m *Messenger) RemoveCore(ctx context.Context, core int) error {
	if err := m.resizing.Remove(ctx, core); err != nil {
		return resizeError(err)
	}
	return nil
}

// resizeError is an error of the resizer as the user knows it.
func resizeError(err error) error {
	if errors.Is(err, dataplane.ErrStopped) {
		err = ErrShutdown
	}
	return fmt.Errorf("control: %w", err)
}

// Cores are the numbers of the cores, ascending, those included that have
// failed or are being removed. Any goroutine.
func (m *Messenger) Cores() []int {
	var ids []int
	for _, c := range m.plane.All() {
		ids = append(ids, c.ID())
	}
	return ids
}
