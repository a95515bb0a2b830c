// Package handshake2 runs the handshake of msgr2, the part of a connection before any
// session: from the banner to the end of AUTH_SIGNATURE, and then the compression
// negotiation if both sides have it (Ceph's ProtocolV2.cc). It serves both
// revisions, msgr2.0 and msgr2.1, and both roles. Package handshake has the rules and types
// that msgr1 shares.
//
// [Connect] and [Accept] are plain sequential code over a handshake.Link: connect.go,
// accept.go, and run.go for both. They return a [Stream], on which the session layer goes on
// with CLIENT_IDENT or SESSION_RECONNECT, and a handshake.Peer, which has the outcome of the
// negotiation. When the session is established, [Stream.Release] gives the codecs, with their
// keys and nonce counters, to the data plane.
//
// Before authentication the size of a frame, the number of rounds and the whole transcript
// are bounded. A frame in the wrong state and a wrong signature end the handshake, as
// malformed bytes do.
package handshake2
