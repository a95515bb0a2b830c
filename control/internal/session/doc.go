// Package session is the session protocol of msgr2 as a pure machine: Step takes
// a session, which is a value, and an event with its facts, and returns the next
// session and the actions to take. It has no lock, no socket, no goroutine, no
// clock and no logger, and does not know the data plane. Package internal/sessions
// carries the actions out.
//
// Where a behaviour lives:
//
//   - The states and their transitions: the table in state.go.
//   - The events and their facts: event.go. The actions: action.go, as text in
//     action_text.go.
//   - A connection between its sockets: dialling, faults, the back-off, standby,
//     hand-over and the end: lifecycle.go, which uses the fault rule (fault.go) and
//     the pauses (backoff.go).
//   - An accepted socket, in both protocols: lifecycle_socket.go.
//   - The connector's frames and the answers to them: msgr2_connect.go.
//   - The acceptor's answers: the two tables in msgr2_tables.go, and the checks around
//     them in msgr2_accept.go.
//   - The beginning of a session on an accepted socket, the take-over of a session by
//     one, and the end of the handshake: msgr2_socket.go.
//   - The bounds of the numbers in frames: numbers.go, msgr2_numbers.go.
//   - The session that belongs to an address: identity.go. The check of a claim to an
//     address: claim.go.
//   - The winner when both ends dial at once: PeerWins in policy.go. It compares the
//     addresses that both ends say they have. It decides which socket the session of
//     two daemons gets, never which peer we reach (identity.go).
//   - Sessions that have ended, which a late CLIENT_IDENT may not bring back: ended.go.
//
// The files whose names begin with msgr2 are for that protocol alone. The others know
// none of its frames: package session1, which is msgr1, uses them too, and adds its own
// frames, its own fields beside Lifecycle, and a Step that passes every [LifeEvent] to
// Lifecycle.
//
// An accepted socket is a session, too, in state Accepting, until the machine has
// decided about it: it becomes a connection (NewConn), goes to an existing one
// (TakeOver), waits for its end (ServerWait), or is closed (Hangup).
//
// The scripts in testdata say all of this as given, event, actions and state; go
// test ./control/session -rewrite brings them up to date.
package session
