// Package dataplane is the I/O side of connections of both protocols, msgr2 and the
// older msgr1, on the cores of package loop.
//
// The loop below moves bytes: cores, sockets, listeners, timers, buffers,
// throttles. A connection begins as a Link of the loop, on which the handshake
// runs. When that is done the protocol gives the Link to a Handler (Open), which
// carries messages until the socket faults; then the protocol decides what
// happens to the session. The Handler has the queues, the list of what was sent
// and not acknowledged, keepalives, and the frame reader, which is the loop's
// Framer. Protocol and Handler talk by numbered events, so that their order
// survives a move of the Handler to another core: by Move while it has no socket,
// by Migrate with the one that it has.
//
// Small frames come in the ring's buffers, where there is a ring that can share them, and
// are parsed there; what belongs to a large segment is read into its place. Each socket
// chooses by what it gets (package loop, receive.go), and HandlerStats says what it does.
//
// What the protocols differ in is in few files:
//
//   - msgr2: receive.go reads its frames, dispatch.go handles them, flush.go writes.
//   - msgr1: framer1.go, dispatch1.go and flush1.go.
//   - both: intake.go has the frame under way and its share of the receive budget;
//     queues, sequence numbers, timers and moves (handler.go, event.go, keepalive.go,
//     migrate.go) know no protocol.
//
// A message that came in one protocol can be sent on in the other, as a rule without
// reading it again: crc.go.
//
// Data goes into memory that a user has posted for it: posting.go, with the rules; how the
// data of an unfinished frame lies apart from the rest is in apart.go.
//
// Memory is bounded on both sides of a connection, and what waits for a bound
// is freed by something that does not wait for the same: budget.go says who
// waits for what.
//
// Frames that bring nothing are bounded in their rate (control.go): a connection that
// sends too many of them is read more rarely.
//
// The package knows frames, acknowledgements and sequence numbers. It does not
// know why a session is reset or replaced: that is package control.
package dataplane
