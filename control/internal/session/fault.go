package session

import (
	"errors"
	"fmt"
	"time"
)

// Errors with which the machine ends an attempt, or which events bring.
var (
	// ErrProtocol: the peer broke the session protocol.
	ErrProtocol = errors.New("control: protocol violation")
	// ErrOtherAddress: the peer does not have the address that was dialled. It wraps
	// ErrProtocol, and reads like it.
	ErrOtherAddress error = otherAddress{}
	// ErrWrongPeer: the peer is not the dialled one.
	ErrWrongPeer = errors.New("control: wrong peer")
	// ErrMissingFeatures: one side requires features that the other lacks.
	ErrMissingFeatures = errors.New("control: missing features")
	// ErrStale: a newer attempt of the same peer is on record.
	ErrStale = errors.New("control: stale connection attempt")
	// ErrWait: a connection race was lost, the peer's own attempt goes on.
	ErrWait = errors.New("control: told to wait")
	// ErrClosed: the peer has said CLOSE on a connection that was open. The session ends.
	ErrClosed = errors.New("control: the peer has closed the connection")
	// ErrElsewhere is wrapped by the error of a session that Connect believed to lead to
	// an address at which the peer is not.
	ErrElsewhere = fmt.Errorf("%w: it is not at the address that it claims", ErrWrongPeer)
	// ErrFrozen: sessions stand still for a hand-over to another process.
	ErrFrozen = errors.New("control: sessions stand still for a hand-over")
)

type otherAddress struct{}

func (otherAddress) Error() string { return ErrProtocol.Error() }
func (otherAddress) Unwrap() error { return ErrProtocol }

// Failure is a fault with the facts for the fault rule.
type Failure struct {
	From     State // of the connection when it came
	Terminal bool  // dialling again would not help
	Waited   bool  // the peer said WAIT
	Once     bool  // the user wants no second attempt
	Work     bool  // a message waits to be sent or acknowledged
	Dialable bool  // the peer could dial us
	Useless  bool  // the session ended again without having been of use
}

// FaultAction is the effect of a fault on the connection.
type FaultAction uint8

// The remedies.
const (
	Refuse   FaultAction = iota // over, with a reset event: dialling again is pointless
	Drop                        // over, with a reset event: the session was lossy
	StandBy                     // stand by until there is a message to send, or the peer comes
	WaitMax                     // dial again after the longest pause
	WaitNext                    // dial again after the next pause
	WaitUse                     // the same, by the pauses of a session that is of no use
	Redial                      // dial again at once
)

// FaultRule is the fault rule (Ceph's ProtocolV2.cc) as a table: the rows are tested in
// order, the first that matches decides.
func FaultRule(p Policy, f Failure) FaultAction {
	attempt := f.From == Connecting
	switch {
	case f.Terminal:
		return Refuse
	case attempt && f.Once:
		return Drop
	case p.Lossy && !attempt:
		return Drop
	case attempt && f.Waited:
		return WaitMax // even without messages: the peer's own attempt may have died
	case p.Server:
		return StandBy
	case p.Standby && !f.Work && f.Dialable:
		// If the peer cannot dial us, only we can bring the two together.
		return StandBy
	case attempt || f.From == Replacing:
		return WaitNext
	case f.Useless:
		return WaitUse
	default:
		return Redial
	}
}

// Backoff is the pause between failed attempts (Ceph's ProtocolV2.cc): it doubles from
// Initial up to Max, and is Max at once after WAIT. There is no jitter.
type Backoff struct {
	Initial, Max time.Duration
	last         time.Duration // 0: no attempt has failed since the last success
}

// Next is the pause before the next attempt. waited: the peer told us to wait.
func (b *Backoff) Next(waited bool) time.Duration {
	switch {
	case waited:
		b.last = b.Max
	case b.last == 0:
		b.last = min(b.Initial, b.Max)
	default:
		b.last = min(2*b.last, b.Max)
	}
	return b.last
}

// Reset begins anew: the session is ready, or an accepted socket takes over; of
// Lifecycle.Useless: it was of use.
func (b *Backoff) Reset() { b.last = 0 }
