//go:build !invariants && !race

package sessions

import (
	"log/slog"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// lockCheck is empty: this build does not check who holds the lock.
type lockCheck struct{}

func (*lockCheck) mayLock()          {}
func (*lockCheck) locked()           {}
func (*lockCheck) unlocked()         {}
func (*lockCheck) mustBeFree(string) {}
func (*lockCheck) enterCore()        {}
func (*lockCheck) leaveCore()        {}

func (*lockCheck) logger(l *slog.Logger) *slog.Logger { return l }
func (*lockCheck) probe(p probe.Probe) probe.Probe    { return p }
func (*lockCheck) watch(*dataplane.Plane)             {}
func (*lockCheck) waits()                             {}
func (*lockCheck) count() uint64                      { return 1 }
