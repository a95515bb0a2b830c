package control

import (
	"context"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

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
func (m *Messenger) AddCore(ctx context.Context) (int, error) { return m.s.AddCore(ctx) }

// RemoveCore takes a core out of service while everything goes on: no new
// connection is placed on it, its listeners are closed or served by another
// core, its connections move to the others, and its thread ends. It fails with
// loop.ErrLastCore for the only core that runs.
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
func (m *Messenger) RemoveCore(ctx context.Context, core int) error { return m.s.RemoveCore(ctx, core) }

// Cores are the cores, by number, those included that have failed or are being removed. The
// list is shared: it must not be changed, and it does not change. It takes no lock. Any
// goroutine, a core's too.
func (m *Messenger) Cores() []*loop.Core { return m.plane.All() }

// Core is the core with that number, nil if there is none. It takes no lock. Any goroutine, a
// core's too.
func (m *Messenger) Core(i int) *loop.Core { return m.plane.Core(i) }

// Driver says what the cores opened: rings or epoll. All of them opened the same. Any goroutine.
func (m *Messenger) Driver() uring.Info { return m.plane.Info() }

// Failures yields the error of a core whose driver broke. What it had has gone to
// the other cores, or was reset. Of several failures that nobody reads some are
// dropped. Any goroutine.
func (m *Messenger) Failures() <-chan error { return m.plane.Failures() }
