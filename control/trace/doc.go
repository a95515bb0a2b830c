// Package trace writes a trace of the frames that a messenger sends and receives, in
// handshakes too: one JSON object per line, a [Record]. Set Config.Diagnostics.Tracer of a
// messenger to a [Log].
//
// Payloads are cut: a record of a message has the lengths and the first few bytes of front,
// middle and data (Options.Cut); a record of a handshake has no byte of the authentication
// method. Frames of mode secure are recorded in clear, so a trace needs the same care as the
// data of the connections.
//
// # Cost and bounds
//
// Without a tracer a frame costs one comparison. With a Log it costs a record in a queue of
// 16 Ki records, which a goroutine writes. A core never waits for the file: at the bound of
// the queue records are dropped, and a record with event "lost" has their number.
// Options.MaxBytes bounds the file: at the bound it is renamed to FILE.1, in the place of an
// older file, and a new file is begun. Both together have at most twice the bound.
//
// "ringmsgr decode" prints a trace, and makes the same records of a recording by
// tcpdump.
package trace
