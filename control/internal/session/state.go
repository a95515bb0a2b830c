package session

import (
	"errors"
	"fmt"
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
func (t Trigger) String() string {
	if int(t) < len(triggerNames) {
		return triggerNames[t]
	}
	return fmt.Sprintf("trigger(%d)", uint8(t))
}

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
	ServerWait: {
		OnClose: Closing,
	},
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
