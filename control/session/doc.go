// Package session is the session protocol of msgr2 as a pure machine: Step takes
// a session, which is a value, and an event with its facts, and returns the next
// session and what is to be done. It has no lock, no socket, no goroutine, no
// clock and no logger, and does not know the data plane; package control carries
// the actions out.
//
// Where a behaviour lives:
//
//   - Which state follows which: the table in state.go.
//   - What can happen, and with which facts: event.go. What has to be done:
//     action.go, in words in action_text.go.
//   - What becomes of a connection between its sockets: dialling, faults, the
//     back-off, standby, hand-over and the end: lifecycle.go, which uses the
//     fault rule (fault.go) and the pauses (backoff.go).
//   - What an accepted socket does whatever it speaks: lifecycle_socket.go.
//   - The connector's frames and the answers to them: msgr2_connect.go.
//   - What an acceptor answers to a peer: the two tables in msgr2_tables.go, and
//     the checks around them in msgr2_accept.go.
//   - How a session begins on an accepted socket, is taken over by one, and gets
//     ready: msgr2_socket.go.
//   - What is believed of the numbers in frames: numbers.go, msgr2_numbers.go.
//   - Who is found under an address, by us and by a peer that comes: identity.go. How
//     a claim to an address is checked: claim.go.
//   - Who wins when both ends dial at once: PeerWins in policy.go, by the addresses
//     that both say they have. That decides which socket the one session of two
//     daemons gets, never whom we reach: a claim counts for that until the address
//     itself says otherwise (identity.go).
//   - What a late CLIENT_IDENT may not bring back: ended.go.
//
// The files that begin with msgr2 are for that protocol alone. The others say
// nothing of its frames: the states, the policy, the fault rule, the back-off, the
// races and Lifecycle are for a second protocol, too, which brings its own frames,
// its own fields beside Lifecycle, and a Step that gives every [LifeEvent] to it.
// Package session1 is that of msgr1.
//
// An accepted socket is a session, too, in state Accepting, until it is decided
// whose it is: it makes a connection (Make), goes to the one that exists (Give),
// waits for its end (ServerWait), or is closed (Hangup).
//
// The scripts in testdata say all of this as given, event, actions and state; go
// test ./control/session -rewrite brings them up to date.
package session
