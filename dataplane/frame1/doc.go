// Package frame1 encodes and decodes the frames of an open connection of msgr1:
// the older protocol: messages with their header, footer and signature, acks and
// keepalives. It is to msgr1 what package frame is to msgr2, a pure codec: it reads
// no socket, keeps no clock, and knows nothing of sessions.
//
// Everything begins with one byte, the [Tag]. [Tag.Size] says how many bytes
// follow it; for a message that is the header, which says how much follows then.
//
// # Sending
//
// [Encoder.AppendMessage] makes a message in one go. A sender that leaves large
// segments where they are gathers: the bytes of [Encoder.AppendHeader], the segments,
// the bytes of [Encoder.AppendFooter].
//
// # Receiving
//
// A message is taken apart in two steps, as only the header says how long it is:
// [Decoder.Header] has checked the lengths against the limits before the caller
// takes memory for the rest; [Decoder.Footer] checks what the caller has summed up
// of it. After any error the stream is lost: close the connection.
//
// Neither keeps a slice that it was given. Encoder and Decoder have no lock: each
// belongs to one connection, and to one goroutine or core at a time.
package frame1
