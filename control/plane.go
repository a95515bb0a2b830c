package control

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// PlaneView shows the cores of a messenger. It changes nothing: that is for
// AddCore, RemoveCore and Shutdown. Any goroutine may use it.
type PlaneView struct{ plane *dataplane.Plane }

// Plane shows the messenger's cores.
func (m *Messenger) Plane() PlaneView { return PlaneView{m.plane} }

// Info says what the cores opened: rings or epoll. All of them opened the same.
func (v PlaneView) Info() uring.Info { return v.plane.Info() }

// Cores is the number of cores, those included that have failed or are being
// removed; Messenger.Cores has their own numbers.
func (v PlaneView) Cores() int { return v.plane.Cores() }

// Stats takes a snapshot of the core with that number. It waits for the core's
// next turn: not for a dispatcher on a core. Without such a core the error wraps
// ErrNoCore.
func (v PlaneView) Stats(core int) (dataplane.CoreStats, error) {
	c := v.plane.Core(core)
	if c == nil {
		return dataplane.CoreStats{}, fmt.Errorf("control: core %d: %w", core, ErrNoCore)
	}
	return dataplane.StatsOf(c)
}

// Failures yields the error of a core whose driver broke. What it had has gone to
// the other cores, or was reset. Of several failures that nobody reads some are
// dropped.
func (v PlaneView) Failures() <-chan error { return v.plane.Failures() }
