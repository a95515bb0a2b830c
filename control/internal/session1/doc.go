// Package session1 is the session protocol of msgr1 as a pure machine. It shares with
// package session, which is msgr2, the states and their table, the policy, the fault
// rule, the back-off, races, standby, hand-over and the end of a connection. As there,
// Step takes a session, which is a value, and an event, and returns the next session and
// the actions to take.
//
// Where a behaviour lives:
//
//   - The events that msgr2 does not have, and the frames: event.go.
//   - The refusals of an acceptor before it looks for a session: refuse.go.
//   - Its answers to a peer that it may know: the table in table.go.
//   - How these answers are carried out, and how an accepted socket takes a connection
//     over: accept.go.
//   - The connector's messages and the answers to them: connect.go.
//   - The bounds of the numbers in frames: numbers.go.
//   - How a session goes on at an address that only its peer has named: claim.go.
//
// A session has no cookies. It is found by the peer's address. connect_seq 0 opens a
// new session; a peer that says 0 where we have a higher number has forgotten the
// session. When a session is resumed, each side says which message it received last
// (SEQ), so that every message arrives once.
//
// The scripts in testdata say all of this; go test ./control/session1 -rewrite brings
// them up to date.
package session1
