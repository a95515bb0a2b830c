// Package judge follows connections by the records of package trace: which state each is
// in, and what is wrong with it. It reads a trace as well as what package dissect makes of
// a recording.
//
//   - judge.go has the [Judge], the life of a connection, and what both protocols share.
//   - msgr2.go and msgr1.go have the order of their handshakes.
//   - data.go has messages, acks and keepalives.
//
// What it says is what an administrator would look for: refusals, sequence numbers that
// are missing or come twice, acks of what was not sent, frames where they do not belong,
// ends before a session is open. Behind a gap it does not claim what the gap may explain.
package judge
