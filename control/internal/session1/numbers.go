package session1

import "github.com/ringmsgr/ringmsgr/control/internal/session"

// What is believed of the numbers in frames, by the rules of session.Numbers. They
// have 32 bits here, and a process may begin to count with the time in seconds:
//
//   - A connect message with more than Max is a protocol violation.
//   - What we are told of our own numbers may be Lead ahead of them.
//   - A number on record that is more than Lead ahead of the peer's own is not told to
//     the peer, and counts only as long as a handshake can be under way that is older
//     (session.Request.Settled).
//   - What the peer has received from us is a number that we have sent. Before our first
//     one it may be any: without reset check the peer resumes the session that it had with
//     the connection before, and drops what does not have a number above (msgr1.md 11).

var numbers = session.Numbers{Max: 1<<32 - 1<<24, Lead: 1 << 24}

// maxReceived bounds what a peer may have received. Messages have 64 bits.
const maxReceived = 1 << 62
