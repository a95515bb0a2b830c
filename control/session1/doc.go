// Package session1 is the session protocol of msgr1 as a pure machine, beside that of
// msgr2 in package session, from which it has all that both protocols share: the
// states and their table, the policy, the fault rule, the back-off, races, standby,
// hand-over and the end of a connection. As there, Step takes a session, which is a
// value, and an event, and returns the next session and what is to be done.
//
// Where a behaviour lives:
//
//   - What can happen that msgr2 does not have, and the frames: event.go.
//   - What an acceptor refuses before it looks for a session: refuse.go.
//   - What it answers to a peer that it may know: the table in table.go.
//   - How it carries that out, and how an accepted socket takes a connection over:
//     accept.go.
//   - The connector's messages and the answers to them: connect.go.
//   - What is believed of the numbers in frames: numbers.go.
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
