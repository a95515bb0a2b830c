package control

import (
	"errors"
	"fmt"
)

// State is the state of a connection (msgr2.md 9.8).
type State uint8

// The states. Their order is that of the protocol text.
const (
	StateNone         State = iota // just made
	StateAccepting                 // acceptor, from the banner to the decision
	StateServerWait                // told the peer to wait, until it hangs up
	StateEstablishing              // new session decided, SERVER_IDENT being sent
	StateConnecting                // from dialling to the peer's answer
	StateReady                     // data phase
	StateStandby                   // no socket, nothing to do
	StateWait                      // back-off timer running
	StateReplacing                 // taking over an accepted socket
	StateClosing                   // over
)

var stateNames = [...]string{
	"none", "accepting", "server_wait", "establishing", "connecting", "ready", "standby", "wait", "replacing", "closing",
}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// event is what can happen to a connection.
type event uint8

const (
	evConnect   event = iota // the user connects
	evAccept                 // a socket was accepted
	evEstablish              // CLIENT_IDENT opens a new session
	evWaitSent               // the peer was told to wait, or lacks features
	evReady                  // the handshake is complete
	evReplace                // an accepted socket takes over
	evStandby                // fault, and nothing to do or not ours to dial
	evRedial                 // fault of an established session: dial at once
	evBackoff                // fault of an attempt: dial later
	evTimer                  // the back-off is over
	evQueued                 // something to send
	evClose                  // marked down, shut down, lossy fault, terminal error
)

var eventNames = [...]string{
	"connect", "accept", "establish", "wait sent", "ready", "replace", "standby", "redial", "backoff", "timer", "queued", "close",
}

func (e event) String() string { return eventNames[e] }

// transitions is the whole state machine: every pair that is not here is
// illegal. The faults of msgr2.md 9.8 appear as what the fault rule (fault.go)
// makes of them: standby, redial, backoff or close.
var transitions = map[State]map[event]State{
	StateNone: {
		evConnect: StateConnecting,
		evAccept:  StateAccepting,
		evClose:   StateClosing,
	},
	StateAccepting: {
		evEstablish: StateEstablishing,
		evWaitSent:  StateServerWait,
		evReplace:   StateClosing, // the socket went to another connection
		evClose:     StateClosing,
	},
	StateServerWait: {
		evClose: StateClosing,
	},
	StateEstablishing: {
		evReady:   StateReady,
		evReplace: StateReplacing,
		evStandby: StateStandby,
		evRedial:  StateConnecting,
		evClose:   StateClosing,
	},
	StateConnecting: {
		evReady:   StateReady,
		evReplace: StateReplacing,
		evStandby: StateStandby,
		evBackoff: StateWait,
		evClose:   StateClosing,
	},
	StateReady: {
		evReplace: StateReplacing,
		evStandby: StateStandby,
		evRedial:  StateConnecting,
		evClose:   StateClosing,
	},
	StateStandby: {
		evQueued:  StateConnecting,
		evReplace: StateReplacing,
		evClose:   StateClosing,
	},
	StateWait: {
		evTimer:   StateConnecting,
		evReplace: StateReplacing,
		evClose:   StateClosing,
	},
	StateReplacing: {
		evReady:   StateReady,
		evReplace: StateReplacing, // a later socket of the same session
		evStandby: StateStandby,
		evBackoff: StateWait,
		evClose:   StateClosing,
	},
	StateClosing: {},
}

// ErrTransition is wrapped by the error of an illegal pair of state and event.
var ErrTransition = errors.New("control: illegal transition")

// next is the state that follows.
func next(s State, e event) (State, error) {
	to, ok := transitions[s][e]
	if !ok {
		return s, fmt.Errorf("%w: %v in state %v", ErrTransition, e, s)
	}
	return to, nil
}
