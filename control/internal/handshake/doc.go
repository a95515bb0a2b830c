// Package handshake runs the part of a connection before any session: from the banner to
// the end of AUTH_SIGNATURE, and then the compression negotiation if both sides have it
// (protocol sections 4, 7 and 8). It serves both revisions, msgr2.0 and msgr2.1, and both
// roles.
//
// [Connect] and [Accept] are plain sequential code over a [Link], an exact-read and
// write view of one TCP connection. They return a [Stream], on which the session layer
// goes on with CLIENT_IDENT or SESSION_RECONNECT, and a [Peer], which has the outcome of
// the negotiation. When the session is established, [Stream.Release] gives the codecs,
// with their keys and nonce counters, to the data plane.
//
// # What this package promises
//
//   - It never reads a byte that it does not consume: bytes that the link has prefetched
//     stay in order for the next owner. Written bytes may still be queued in a
//     [BufferedLink]; the next owner sends them first.
//   - Everything received before authentication is bounded: frame sizes, the number of
//     rounds, and the whole transcript.
//   - A frame in the wrong state, a wrong signature and every malformed byte end the
//     handshake with an [*Error]. It never panics on input.
//   - Secrets are overwritten as soon as the ciphers are installed and the signatures
//     compared, and when a handshake fails.
//
// # What it leaves to others
//
// The time limit is the deadline of the context. A caller should always set one, because
// a peer may stay silent for ever. The session layer closes the socket, backs off and
// retries; [Error.Terminal] says whether a retry has a chance. It also learns its own
// address from [Peer.SeenAs] and [Peer.Target]; [LearnClassic] has the rule for a client
// without an address.
//
// One handshake belongs to one goroutine. Different handshakes share nothing.
package handshake
