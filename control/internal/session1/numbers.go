package session1

import "github.com/ringmsgr/ringmsgr/control/internal/session"

// The bounds of the numbers in frames, by the rules of session.Numbers. They have 32 bits here,
// and a process may begin to count with the time in seconds:
//
//   - A connect message with more than Max is a protocol violation.
//   - Our own numbers in an answer may be Lead ahead of the true ones.
//   - A number on record that is more than Lead ahead of the peer's own is not sent to the
//     peer, and counts only while an older handshake can be under way
//     (session.Request.Settled).
//   - The last message that the peer has received from us is one that we have sent. Before
//     our first one it may be any: without reset check the peer resumes the session of the
//     connection before, and drops messages without a higher number (msgr1.md 11).

var numbers = session.Numbers{Max: 1<<32 - 1<<24, Lead: 1 << 24}

// maxReceived bounds the number of the last received message, which has 64 bits.
const maxReceived = 1 << 62
