//go:build mutants

package mutant

import "os"

var chosen = os.Getenv("RINGMSGR_MUTANT")

// The bugs.
var (
	// AckTooHigh acknowledges one message more than was received.
	AckTooHigh = chosen == "ack-too-high"
	// ForgetRequeue does not send again what was sent and not acknowledged.
	ForgetRequeue = chosen == "forget-requeue"
	// SwapEvents runs an event of the protocol behind the next one.
	SwapEvents = chosen == "swap-events"
	// ReplayBehind sends what is replayed after what was not sent yet.
	ReplayBehind = chosen == "replay-behind"
	// KeepInSeq lets a new session go on with the received sequence of the old.
	KeepInSeq = chosen == "keep-in-seq"
	// LoseNotify does not tell the protocol that a session in standby has
	// something to send.
	LoseNotify = chosen == "lose-notify"
	// AckUndispatched acknowledges messages of a closed connection.
	AckUndispatched = chosen == "ack-undispatched"
	// LeaveInThrottle does not return the units of an unfinished message.
	LeaveInThrottle = chosen == "leave-in-throttle"
	// MoveUnannounced does not say that a connection goes to another core.
	MoveUnannounced = chosen == "move-unannounced"
	// LeakUnsent forgets a message that was queued when its connection
	// closed.
	LeakUnsent = chosen == "leak-unsent"
	// StayInLine leaves a connection that has ended in the line of a throttle.
	StayInLine = chosen == "stay-in-line"
)
