// Package frame encodes and decodes the frames of messenger v2, revisions 0 and 1 (msgr2.0 and
// msgr2.1), in crc and in secure mode (Ceph's frames_v2.h). It is a pure codec: bytes in, bytes
// out. It reads no socket, keeps no clock, starts no goroutine and knows nothing of sessions;
// the packages above know the meaning of a tag, and when it is legal.
//
// # Sending
//
// An Encoder turns up to four segments into one frame. AppendFrame does it in
// one go in every mode. In plain crc mode a sender may leave large segments
// where they are and gather: the bytes of AppendMessage, then segments 1, 2 and
// 3, then the bytes of AppendEnd or AppendClose. Gathers tells whether that is possible.
//
// In secure mode AppendFrame encrypts large segments from where they lie
// straight into the frame, at the speed of crypto/cipher; the segments stay in
// clear, as they may have to be sent again on another connection.
//
// # Receiving
//
// A Decoder takes a frame in two steps, because only the preamble tells how
// long the frame is: read HeadSize bytes, call Open, read RestSize bytes, call
// Finish. Open has checked the tag, the bound of a frame with that tag (Bound), and
// the limits, before the caller takes memory for the rest. Steps must
// alternate, in the order of the stream: the nonces of secure mode advance with
// them. After any error the stream is lost: close the connection.
//
// The fastest layout in secure mode is one buffer that holds head and rest
// back to back: everything is then decrypted in place. In crc mode it makes no
// difference, and large data can go to memory of its own: see Split and
// FinishSplit.
//
// # Ownership
//
// Nothing is kept of the slices handed in, once a call has returned. Segments
// of a decoded Frame lie in the buffers given to Finish (exceptions are listed
// there) and live as long as these. Encoder and Decoder belong to one
// connection and to one goroutine or core at a time; there is no lock in them.
package frame
