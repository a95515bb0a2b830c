// Package trace writes down the frames that a messenger sends and receives, those of
// handshakes included: one JSON object per line, a [Record]. Set Config.Diagnostics.Tracer of a
// messenger to a [Log].
//
// Payloads are cut: of front, middle and data of a message a record has the lengths and
// the first few bytes (Options.Cut), and of an authentication method no byte at all. The
// rest are the fields of the frame, its sequence numbers and flags. Frames are recorded in
// clear in mode secure as well, so a trace needs the same care as the data of the
// connections.
//
// # Cost and bounds
//
// Without a tracer a frame costs one comparison. With a Log it costs a record, which is
// put in a queue of 16 Ki records; a goroutine writes it. A core never waits for the
// file: if the queue is full records are dropped, and one with event "lost" says how many.
// The file is bounded by Options.MaxBytes: at the bound it is renamed to FILE.1, in the
// place of an older one, and a new one is begun, so that both together never have more
// than twice the bound.
//
// "ringmsgr decode" prints a trace, and makes the same records of a recording by
// tcpdump.
package trace
