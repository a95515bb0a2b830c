// Package none is the authentication method without proof: the acceptor believes the
// connector's name (Ceph's AuthNoneProtocol.h).
//
// There is no session key, so the handshake signatures are zero, and no connection
// secret, so the only connection mode is crc. A [Client] and a [Server] are safe for
// concurrent use; neither keeps state per connection.
package none
