//go:build !invariants && !race

package steplock

import (
	"log/slog"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

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
func (*Check) Watch(*dataplane.Plane) {}

// Logger is l.
func (*Check) Logger(l *slog.Logger) *slog.Logger { return l }

// Probe is p.
func (*Check) Probe(p probe.Probe) probe.Probe { return p }

// TakenLocked is not counted in this build.
func (*Check) TakenLocked() uint64 { return 1 }
