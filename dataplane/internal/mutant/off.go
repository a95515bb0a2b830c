//go:build !mutants

package mutant

// The bugs; see on.go for what they are.
const (
	AckTooHigh      = false
	ForgetRequeue   = false
	SwapEvents      = false
	ReplayBehind    = false
	KeepInSeq       = false
	LoseNotify      = false
	AckUndispatched = false
	LeaveInThrottle = false
	MoveUnannounced = false
	LeakUnsent      = false
	StayInLine      = false
)
