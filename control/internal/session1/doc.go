// Package session1 is a session of msgr1: the parts that package session leaves to the protocol.
//
// Where a behaviour lives:
//
//   - The frames: session.go.
//   - The answers of an acceptor to a peer that it may know: the table in table.go.
//   - Its refusals before that, how the answers are carried out, how an accepted socket takes a
//     connection over, and how a session goes on at an address that only its peer has
//     named: accept.go.
//   - The connector's messages and the answers to them: connect.go.
//
// A session has no cookies. It is found by the peer's address. connect_seq 0 opens a new
// session; a peer that sends 0 for a session in which we have a higher number has forgotten it.
// On a resume each side sends the number of the last message that it received (SEQ), so that
// every message arrives once.
//
// The scripts in testdata show these rules; go test ./control/internal/session -rewrite brings
// them up to date.
package session1
