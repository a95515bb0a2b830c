// Package dissect finds the frames of msgr2 and msgr1 in the two byte streams of a TCP
// connection, as a recording has them, and makes the records of package trace of them.
//
//   - conn.go is a [Conn]: it tells the protocols apart and feeds both directions, of which
//     one often waits for what the other says.
//   - msgr2.go has banners and frames of both revisions, in mode crc, in mode secure if the
//     key was logged, and compressed.
//   - msgr1.go has the handshake and the messages of the older protocol.
//   - resync.go finds the next frame where bytes are missing or damaged.
//
// It judges bytes: crcs, lengths, encodings. Whether a frame is legal where it stands is
// for package judge.
package dissect
