package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// State is the state of a connection (Ceph's ProtocolV2.cc). The states and the table
// below hold for every protocol of a messenger.
type State uint8

// The states. Their order is that of the protocol text.
const (
	None         State = iota // just made
	Accepting                 // accepted socket, until the decision about its connection
	ServerWait                // accepted socket after WAIT, until its peer hangs up
	Establishing              // new session decided, its first answer is being sent
	Connecting                // from dialling to the peer's answer
	Ready                     // data phase
	Standby                   // no socket, and no work
	Wait                      // back-off timer running
	Replacing                 // an accepted socket takes over
	Closing                   // over
)

var stateNames = [...]string{
	"none", "accepting", "server_wait", "establishing", "connecting", "ready", "standby", "wait", "replacing", "closing",
}

// String is the name in logs and statistics.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Trigger is the cause of a change of state: a column of the table.
type Trigger uint8

// The triggers. The faults of ProtocolV2.cc appear as the results of the fault rule
// (FaultRule): standby, redial, backoff or close.
const (
	OnConnect   Trigger = iota // the user connects
	OnAccept                   // a socket was accepted
	OnEstablish                // the peer opens a new session
	OnWaitSent                 // we have sent WAIT
	OnReady                    // the handshake is complete
	OnReplace                  // an accepted socket takes over
	OnStandby                  // fault, and no work or not ours to dial
	OnRedial                   // fault of an established session: dial at once
	OnBackoff                  // fault of an attempt, or of a session that is of no use: dial later
	OnTimer                    // the back-off is over
	OnQueued                   // a message to send
	OnClose                    // marked down, shut down, lossy fault, terminal error
	OnFreeze                   // a hand-over has the session stand still
	OnRestore                  // the session comes from another process
	OnLoopback                 // the connection to ourselves, ready at once
)

var triggerNames = [...]string{
	"connect", "accept", "establish", "wait sent", "ready", "replace", "standby", "redial", "backoff", "timer", "queued", "close",
	"freeze", "restore", "loopback",
}

// String is the name in logs.
func (t Trigger) String() string { return triggerNames[t] }

// transitions is the whole state machine: every pair that is not here is
// illegal.
var transitions = map[State]map[Trigger]State{
	None: {
		OnConnect:  Connecting,
		OnAccept:   Accepting,
		OnRestore:  Standby,
		OnLoopback: Ready,
	},
	Accepting: {
		OnEstablish: Establishing,
		OnWaitSent:  ServerWait,
		OnReplace:   Closing, // the socket goes to another connection
		OnClose:     Closing,
	},
	ServerWait: {}, // the end of its socket is no event
	Establishing: {
		OnReady:   Ready,
		OnReplace: Replacing,
		OnStandby: Standby,
		OnRedial:  Connecting,
		OnClose:   Closing,
		OnFreeze:  Standby,
	},
	Connecting: {
		OnReady:   Ready,
		OnReplace: Replacing,
		OnStandby: Standby,
		OnBackoff: Wait,
		OnClose:   Closing,
		OnFreeze:  Standby,
	},
	Ready: {
		OnReplace: Replacing,
		OnStandby: Standby,
		OnRedial:  Connecting,
		OnBackoff: Wait,
		OnClose:   Closing,
		OnFreeze:  Standby,
	},
	Standby: {
		OnQueued:  Connecting,
		OnReplace: Replacing,
		OnClose:   Closing,
		OnFreeze:  Standby,
	},
	Wait: {
		OnTimer:   Connecting,
		OnReplace: Replacing,
		OnClose:   Closing,
		OnFreeze:  Wait, // without its timer
	},
	Replacing: {
		OnReady:   Ready,
		OnReplace: Replacing, // a later socket of the same session
		OnStandby: Standby,
		OnBackoff: Wait,
		OnClose:   Closing,
		OnFreeze:  Standby,
	},
	Closing: {},
}

// ErrTransition is wrapped by the error of an illegal pair of state and trigger.
var ErrTransition = errors.New("control: illegal transition")

// Next is the state that follows.
func Next(s State, t Trigger) (State, error) {
	to, ok := transitions[s][t]
	if !ok {
		return s, fmt.Errorf("%w: %v in state %v", ErrTransition, t, s)
	}
	return to, nil
}

// Policy is the part of a connection's policy (Ceph's Policy.h) that concerns the protocol.
type Policy struct {
	Lossy      bool // a fault ends the connection; no message is sent again
	Server     bool // never dials: after a fault it waits for the peer
	Standby    bool // after a fault does not dial before there is a message to send, if the peer could dial us
	ResetCheck bool // a peer that lost its session resets ours
	Register   bool // accepted connections are found by address, lossy ones too

	Supported wire.Features // features that we offer
	Required  wire.Features // features that the peer must have
}

// Findable says whether accepted connections are found by the peer's address.
func (p *Policy) Findable() bool { return !p.Lossy || p.Register }

// Peer is the other end of a connection, as far as it is known.
type Peer struct {
	Target      wire.Addr // address to dial; blank for none
	Dialled     bool      // Target was asked for, else the peer says that it is there
	Near        bool      // the peer that claimed Target came from its IP
	Anonymous   bool      // the connection is not found by the peer's address
	Addrs       wire.AddrVec
	Type        wire.EntityType
	Entity      wire.EntityName // as authenticated, or as expected; zero: not known
	Proven      bool            // Entity is proven, not only said
	Number      int64           // gid; valid if NumberKnown
	NumberKnown bool
}

// GivesWay says whether a connection to p does not count for another peer, which says
// that it has the same address. Nobody checks the address that a client says it has, so one gives
// way to a daemon.
func (p *Peer) GivesWay(to *Peer) bool { return p.Type == wire.Client && to.Type != wire.Client }

// sameEntity compares authenticated names; one that is not known matches all.
func sameEntity(a, b wire.EntityName) bool {
	return a == b || a == (wire.EntityName{}) || b == (wire.EntityName{})
}

// Snapshot is the state of an I/O handler that is not open, as the protocol needs it.
type Snapshot struct {
	InSeq  uint64 // highest sequence received
	OutSeq uint64 // highest sequence sent
	Queued bool   // a message waits to be sent
	Sent   bool   // a message was sent and not acknowledged
	// Notifications is the number of the handler's last notification before the snapshot.
	Notifications uint64
}

// Requeued is the snapshot after everything sent was queued again.
func (s Snapshot) Requeued() Snapshot {
	s.Queued = s.Queued || s.Sent
	s.Sent = false
	return s
}

// GlobalSeq is a messenger's count of connection attempts (Ceph's ProtocolV2.cc). Its
// owner guards it.
type GlobalSeq uint64

// Next numbers an attempt.
func (g *GlobalSeq) Next() uint64 {
	*g++
	return uint64(*g)
}

// PeerWins decides which connection survives when both ends dial at once (Ceph's
// ProtocolV2.cc): the one that the end with the lower address dialled, and always the peer's if
// our own policy is that of a server. Both ends come to the same result.
func PeerWins(p Policy, ours, theirs wire.Addr) bool {
	return p.Server || ours.Compare(theirs) > 0
}

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
