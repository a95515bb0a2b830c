// Package handshake runs the part of a connection that comes before any session: from
// the banner to the end of AUTH_SIGNATURE, and the compression negotiation behind it if
// both sides have it (protocol sections 4, 7 and 8). It serves both revisions, msgr2.0
// and msgr2.1, and both roles.
//
// [Connect] and [Accept] are plain sequential code over a [Link], an exact-read and
// write view of one TCP connection. They return a [Stream], on which the session layer
// goes on with CLIENT_IDENT or SESSION_RECONNECT, and a [Peer], which says what was
// agreed. When the session is established, [Stream.Release] gives up the codecs, keys
// and nonce counters included, to whoever moves the messages.
//
// # What this package promises
//
//   - It never reads a byte that it does not consume, so what the link has prefetched
//     stays in order for the next owner. What it has written may still be queued in the
//     link, if that is a [BufferedLink]; the next owner sends it first.
//   - Everything received before authentication is bounded: frame sizes, the number of
//     rounds, and the whole transcript.
//   - A frame in the wrong state, a wrong signature and every malformed byte end the
//     handshake with an [*Error]. It never panics on input.
//   - Secrets are overwritten as soon as the ciphers are installed and the signatures
//     compared, and when a handshake fails.
//
// # What it leaves to others
//
// Time limits are the deadline of the context; a caller should always set one, because
// a peer may stay silent for ever. Closing the socket, back-off and retry belong to the
// session layer, which asks [Error.Terminal] whether to retry at all. Learning the own
// address from [Peer.SeenAs] and [Peer.Target] is the session layer's, too; for a client
// without one, [LearnClassic] has the rule.
//
// One handshake belongs to one goroutine. Different handshakes share nothing.
package handshake
