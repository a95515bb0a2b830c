package control

import "github.com/ringmsgr/ringmsgr/control/session"

// State is the state of a connection (msgr2.md 9.8). Package session has the
// table of the transitions.
type State = session.State

// The states, in the order of the protocol text.
const (
	StateNone         = session.None         // just made
	StateAccepting    = session.Accepting    // acceptor, from the banner to the decision
	StateServerWait   = session.ServerWait   // told the peer to wait, until it hangs up
	StateEstablishing = session.Establishing // new session decided, SERVER_IDENT being sent
	StateConnecting   = session.Connecting   // from dialling to the peer's answer
	StateReady        = session.Ready        // data phase
	StateStandby      = session.Standby      // no socket, nothing to do
	StateWait         = session.Wait         // back-off timer running
	StateReplacing    = session.Replacing    // taking over an accepted socket
	StateClosing      = session.Closing      // over
)

// ErrTransition is wrapped by the error of an event that a state does not allow,
// which is a bug of this package.
var ErrTransition = session.ErrTransition
