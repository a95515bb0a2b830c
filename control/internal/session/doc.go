// Package session has the rules of sessions that msgr2 and msgr1 share, as a pure machine:
// [Advance] takes a session and an event with its facts, changes the session and returns the
// actions to take. The machine has no lock, no socket, no goroutine, no clock and no logger, and
// does not know the data plane. Package internal/sessions carries the actions out.
//
// A session is a [Protocol]: that of package session2 is msgr2, that of session1 is msgr1. Both
// have a [Lifecycle], which takes each event and asks its protocol where the two differ: for the
// frames, and for the numbers of their own. The frames of both are in these packages.
//
// Where a behaviour lives:
//
//   - The states and their transitions: the table in state.go.
//   - The events and their facts: event.go. The actions: action.go.
//   - A connection between its sockets: dialling, faults, the back-off, standby,
//     hand-over and the end, and the socket of an attempt up to the end of the
//     handshake: lifecycle.go, which uses the fault rule and the pauses (Backoff) of
//     state.go.
//   - The bounds of the numbers in frames: session.go.
//   - The session that belongs to an address, and sessions that have ended, which a
//     late CLIENT_IDENT may not bring back: identity.go.
//   - The winner when both ends dial at once: PeerWins in state.go. It compares the
//     addresses that both ends say they have. It decides which socket the session of
//     two daemons gets, never which peer we reach.
//
// An accepted socket is a session, too, in state Accepting, until the machine has
// decided about it: it becomes a connection (NewConn), goes to an existing one
// (TakeOver), is kept until the peer hangs up (ServerWait), or is closed (Hangup).
package session
