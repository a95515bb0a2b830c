// Package dataplane is the I/O side of connections of both protocols, msgr2 and the
// older msgr1, on the cores of package loop.
//
// The loop below moves bytes: cores, sockets, listeners, timers, buffers,
// throttles. A connection begins as a Link of the loop, on which the handshake
// runs. Then the session side gives the Link to a Handler (Open), which carries
// messages until the socket faults; then the session side decides what happens to
// the session. The Handler has the queues, the list of sent messages that are not
// acknowledged, keepalives, and the frame reader, which is the loop's Framer.
// Session and Handler talk by numbered events, so that their order survives a move
// of the Handler to another core: by Move without a socket, by Migrate with one.
//
// Small frames are parsed in the ring's shared buffers, if the ring has them; the bytes of
// a large segment are read into their place. Each socket chooses by its traffic (package
// loop, receive.go), and HandlerStats shows the choice.
//
// The two protocols differ in few files, behind one interface (framer.go):
//
//   - msgr2: framer2.go reads and makes its frames.
//   - msgr1: framer1.go.
//   - both: intake.go has the frame under way and its share of the receive budget, dispatch.go
//     the rules of a received frame, flush.go the parts of a write;
//     queues, sequence numbers, timers and moves (handler.go, event.go, keepalive.go,
//     migrate.go) know no protocol.
//
// A message that came in one protocol can be sent on in the other, as a rule without
// reading its payload again: crc.go.
//
// Users post memory for data: posting.go has the rules. The data of an unfinished frame
// lies apart from its other parts.
//
// Memory is bounded in both directions of a connection. A connection that waits at a
// bound is freed by something that does not wait at the same bound: budget.go has the
// table.
//
// The rate of frames that bring nothing is bounded (progress.go): a connection that sends
// too many of them is read more rarely.
//
// The package knows frames, acknowledgements and sequence numbers. It does not know why
// a session is reset or replaced: package control/internal/session decides that.
package dataplane
