//go:build !invariants && !race

package steplock

import (
	"log/slog"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Check is empty: this build does not check who holds the lock.
type Check struct{}

func (*Check) mayLock()          {}
func (*Check) locked()           {}
func (*Check) unlocked()         {}
func (*Check) MustBeFree(string) {}
func (*Check) EnterCore()        {}
func (*Check) LeaveCore()        {}

func (*Check) Logger(l *slog.Logger) *slog.Logger { return l }
func (*Check) Probe(p probe.Probe) probe.Probe    { return p }
func (*Check) Watch(*dataplane.Plane)             {}
func (*Check) Waits()                             {}
func (*Check) TakenLocked() uint64                { return 1 }
