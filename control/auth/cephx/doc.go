// Package cephx authenticates with shared keys and tickets, as a connector and as an
// acceptor. It is wire-compatible with Ceph: a [Client] logs in to real monitors and
// connects to real daemons, a [Server] accepts real ones.
//
// # The protocol
//
// Every entity (client.admin, osd.0, the monitors together) has a secret [Key] that it
// shares with the monitors. There are two kinds of exchange.
//
// Towards a monitor, the entity logs in:
//
//	connector                                  monitor
//	name, wanted global id         ->
//	                               <-          server challenge
//	proof (a function of both challenges
//	and the entity key), own challenge,
//	old ticket, wanted services    ->
//	                               <-          session key under the entity key,
//	                                           tickets under the session key,
//	                                           connection secret
//
// A ticket is a blob that only the service that it is for can open, because it is
// encrypted with a secret that the monitors share with that service and replace every
// hour. It names the entity, its global id, its capabilities, and a session key; the
// entity gets the same session key under a key that it knows.
//
// Towards any other daemon, the entity shows the ticket:
//
//	connector                                  service
//	ticket, nonce under the
//	session key                    ->
//	                               <-          challenge under the session key
//	ticket, nonce and challenge + 1
//	under the session key          ->
//	                               <-          nonce + 1 and the connection secret
//	                                           under the session key
//
// The challenge makes a recorded exchange useless; nonce + 1 proves that the service
// could open the ticket. Monitors connect to each other in the same way, with tickets
// that they make themselves from the key of "mon.".
//
// Both exchanges end with a session key, which signs the handshake, and in mode secure
// with a connection secret of 64 bytes, from which the ciphers are made.
//
// # What to use
//
// A connector makes a [Client] and gives it to the messenger. The client keeps the
// tickets, and the secrets of a daemon's service in a [SecretStore]: send what
// [Client.RenewRequest] returns over the monitor session (in an MAuth message), at
// [Client.RenewAt]. Package mon does it.
//
// An acceptor makes a [Server]: with a SecretStore as a daemon, with an [Authority] as
// a monitor. The authority has the [Keyring] and makes and rotates the service secrets.
//
// [Client.Login] and [Session] are the two ends of the first exchange without a messenger
// around them, for protocol version 1, which carries the same payloads in MAuth messages.
//
// # What it protects, and what not
//
// Proofs, challenges and paddings are compared in constant time. Keys live behind
// pointers, no format of fmt, slog or JSON shows them, and they are overwritten when they
// are replaced or when an exchange ends. (The key schedules inside
// crypto/aes and crypto/hmac are out of reach and left to the garbage collector.)
//
// A [Kind] of keys decides about the cipher. That of AES, the kind of all releases, is
// AES-128-CBC with a constant IV and no authentication code. This package cannot improve
// on that; it refuses what it can recognise, such as a monitor's reply that was seen
// before. AES256K, since 20.2, encrypts with AES-256 and a random block in front, and
// everything has an HMAC. Both live in one cluster: a session key is of the kind of the
// weaker of the keys that it travels under. [Ciphers] are what a cluster allows.
package cephx
