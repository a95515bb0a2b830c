// Package stepped is how a simulator runs a core in place of a thread. It is
// internal so that no program configures cores that nobody turns; Package
// simnet hands it to users that simulate.
package stepped

import "time"

// Stepper runs one core. One goroutine at a time uses it.
type Stepper interface {
	// Turn does one turn of the core, which does not sleep, with one task of its
	// mailbox: the simulator decides what comes next.
	Turn() error
	// Busy says whether the core has something to do that no completion would tell
	// of.
	Busy() bool
	// EndInTurn has the core end in a turn when the plane is closed, not in Plane.Close.
	EndInTurn()
	// Deadline is when the earliest timer is due, on the clock of Config.Now.
	Deadline() (when time.Duration, ok bool)
}
