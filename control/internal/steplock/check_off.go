//go:build !invariants && !race

package steplock

import (
	"log/slog"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Enabled says whether this build checks who holds the lock.
const Enabled = false

// Check is empty: this build does not check who holds the lock.
type Check struct{}

func (*Check) mayLock()  {}
func (*Check) locked()   {}
func (*Check) unlocked() {}

// MustBeFree does nothing in this build, like those below.
func (*Check) MustBeFree(string) {}

// EnterCore does nothing.
func (*Check) EnterCore() {}

// LeaveCore does nothing.
func (*Check) LeaveCore() {}

// Waits does nothing.
func (*Check) Waits() {}

// Watch does nothing.
func (*Check) Watch(*loop.Plane) {}

// Logger is l.
func (*Check) Logger(l *slog.Logger) *slog.Logger { return l }

// Probe is p.
func (*Check) Probe(p probe.Probe) probe.Probe { return p }

// TakenLocked is not counted in this build.
func (*Check) TakenLocked() uint64 { return 1 }
