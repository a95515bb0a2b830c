// Package handshake has what the handshakes of both protocols share: package handshake2 is
// that of msgr2, package handshake1 that of msgr1.
//
//   - [Link] is the TCP connection that a handshake reads and writes; [Transport] asks the
//     probe about each step on it.
//   - [Run] is the step under way; [Error] is the error of every handshake, with the stage
//     and the reason.
//   - [Peer] is the outcome.
//
// # Rules of both handshakes
//
//   - A handshake never reads a byte that it does not consume: bytes that the link has
//     prefetched stay in order for the next owner. Written bytes may still be queued in a
//     [BufferedLink]; the next owner sends them first.
//   - Everything received before authentication is bounded.
//   - Every malformed byte ends the handshake with an [*Error]. It never panics on input.
//   - Secrets are overwritten as soon as the ciphers and signers have them, and when a
//     handshake fails.
//
// The time limit is the deadline of the context. A caller always sets one, because a peer
// may stay silent for ever. The session layer closes the socket, backs off and retries;
// [Error.Terminal] says whether a retry has a chance.
//
// One handshake belongs to one goroutine. Different handshakes share nothing.
package handshake
