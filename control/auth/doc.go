// Package auth defines the interface between the messenger and an authentication method, and
// the rules of all methods: how the acceptor picks a connection mode, and how the connector
// verifies that choice.
//
// The methods themselves are packages of their own, auth/none and auth/cephx. This
// package knows neither of them, nor frames, nor sockets.
//
// # The calls
//
// A [Client] or [Server] is one value per messenger identity. The handshake of each TCP
// connection calls Start once and drives the exchange that it gets, on one goroutine,
// one call at a time. Client and Server must be safe for concurrent use; an exchange
// need not be. All calls may block, on ordinary goroutines, and must return soon after
// their context is done.
//
// # Who owns the secrets
//
// Payload slices given to a method belong to the caller and are valid during the call only.
// Payload slices that a method returns are read before the next call and never written. A
// [Result] belongs to its receiver: a method puts copies there, never its own key material. The
// handshake wipes [Result.SessionKey] and [Result.ConnectionSecret] as soon as the signatures
// were exchanged and the ciphers installed. A method wipes its own secrets; an exchange with
// secrets implements [Wiper], which the handshake calls at its end in any case.
package auth
