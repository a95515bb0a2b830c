// Package handshake1 runs the handshake of msgr1 over a link, in both roles: banners and
// addresses, then connect messages with their authorizers and the answers to them
// (Ceph's msgr.h and ProtocolV1.cc). Package handshake has the rules and types that msgr2 shares.
//
// In msgr1 the session is agreed on in the same messages as the authentication, so this
// package shares the work with the machine of package session1:
//
//   - [Connect] and [Accept] exchange banners and addresses: connect.go, accept.go.
//   - The machine makes the connect message. [Connector.Ask] adds the authorizer, answers
//     a challenge, verifies the acceptor's proof, and returns the answer that the machine
//     wants.
//   - [Acceptor.ReadConnect] and [Acceptor.Verify] are the other side, [Acceptor.Reply]
//     sends the answer of the machine.
//   - When the connection is open, Release gives up the codecs for its features, which
//     sign if both sides can: run.go.
//
// [Authorizes] says which connectors need an authorizer: all but those of a monitor, which
// authenticate by messages on the open connection.
//
// msgr1 encrypts nothing: everybody on the way can read a connection. So the handshake
// fails if the auth client or server allows mode secure only.
package handshake1
