package control

import (
	"context"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// AddCore starts one more core and returns its number, the lowest free one. The core listens on
// all our addresses, is steered to, and gets its share of new connections. Existing connections
// stay on their cores.
//
// With the owner hint, only cookies from now on name the new core. If no core had so high a
// number before, a peer with an older cookie may come to a core without its session, which then
// moves there.
//
// ctx bounds the wait for other changes of cores, and for a core that is stuck in a callback;
// after its error there is no new core. Not on a core.
func (m *Messenger) AddCore(ctx context.Context) (int, error) { return m.s.AddCore(ctx) }

// RemoveCore takes a core out of service: no new connection is placed on it, its listeners are
// closed or served by another core, its connections move to the others, and its thread ends. It
// fails with loop.ErrLastCore for the only running core.
//
// Connections move with their sockets: no message is lost, doubled or reordered, and the peer
// sees no change. The user sees Dispatcher.Move and Moved. Handshakes under way end on the core
// first. No connect is refused: the steering program moves waiting connections to another
// listener; without it another core accepts from the listening socket until a core is added
// again.
//
// A connection moves after its last write, for which a slow peer may take long. When ctx ends
// the remaining connections fault as if their TCP connection had broken, and RemoveCore returns
// that error; the removal then ends by itself.
//
// A failed core is removed in the same way. Pins to the core (PinPeer) end. Its number is the
// first to be used again. Not on a core.
func (m *Messenger) RemoveCore(ctx context.Context, core int) error { return m.s.RemoveCore(ctx, core) }

// Cores are the cores by number, with failed ones and those under removal. The list is shared
// and must not be changed. It takes no lock. Any goroutine, a core's too.
func (m *Messenger) Cores() []*loop.Core { return m.plane.All() }

// Core is the core with a number, or nil. It takes no lock. Any goroutine, a core's too.
func (m *Messenger) Core(i int) *loop.Core { return m.plane.Core(i) }

// Driver says what the cores opened: rings or epoll. All of them opened the same. Any goroutine.
func (m *Messenger) Driver() uring.Info { return m.plane.Info() }

// Failures yields the error of a core whose driver broke. What it had has gone to
// the other cores, or was reset. Of several failures that nobody reads some are
// dropped. Any goroutine.
func (m *Messenger) Failures() <-chan error { return m.plane.Failures() }
