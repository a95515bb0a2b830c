// Package session1 is a session of msgr1: the parts that package session leaves to the protocol.
//
// Where a behaviour lives:
//
//   - The frames: frame.go.
//   - The refusals of an acceptor before it looks for a session: refuse.go.
//   - Its answers to a peer that it may know: the table in table.go.
//   - How these answers are carried out, and how an accepted socket takes a connection
//     over: accept.go.
//   - The connector's messages and the answers to them: connect.go.
//   - The bounds of the numbers in frames: numbers.go.
//   - How a session goes on at an address that only its peer has named: claim.go.
//
// A session has no cookies. It is found by the peer's address. connect_seq 0 opens a new
// session; a peer that sends 0 for a session in which we have a higher number has forgotten it.
// On a resume each side sends the number of the last message that it received (SEQ), so that
// every message arrives once.
//
// The scripts in testdata show these rules; go test ./control/internal/session1 -rewrite brings
// them up to date.
package session1
