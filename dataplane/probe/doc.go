// Package probe has the two seams in the path of each connection: a Probe, by which a
// test sees what connections do and disturbs them, and a Tap, by which a trace sees
// frames.
//
// A messenger that is configured with a Probe asks it at every point that a
// connection passes, from the dial to the last frame: what it is about to do
// (Point), on which Socket, for which Conn. The answer, an error, says what happens
// there:
//
//	answer          in a handshake                      in the data phase
//	nil             goes on                             goes on
//	ErrReset        the socket ends with a TCP reset    the same
//	ErrHalfClose    our direction ends, the rest        the same
//	                goes on
//	ErrHold         (At may wait instead)               stops that direction before the
//	                                                    frame, until Conn.Resume
//	any other       a fault at that place               the same
//
// The packages handshake and dataplane take a *Socket, which is nil without a
// probe and then costs one comparison. With a probe a handshake writes each frame
// on its own, so that what the probe is told of is on its way and nothing else is.
//
// Package control/internal/nodetest has a Probe with break points and counters.
//
// A Tap sees the frames of one TCP connection in clear, those of the handshake and of the
// data phase in both directions, and disturbs nothing. A messenger that is configured
// with a Tracer asks it for a Tap for every socket. Without one a frame costs one
// comparison. Package control/trace has a Tracer that writes a file.
package probe
