// Package control is the messenger that users embed: connections with a policy,
// handshakes, sessions that survive their TCP connections, and the dispatch of
// messages.
//
// A Messenger binds addresses, connects to peers and accepts from them. A Conn
// is one connection: Send queues messages from any goroutine; received ones
// come to the Dispatchers, on the core that owns the connection (Fast) or on a
// goroutine (Queued). What happens when a TCP connection breaks is the
// connection's Policy: on a lossy one it is over and a reset event says so; on
// a lossless one the session reconnects and every message arrives exactly once
// and in order.
//
// The protocol of all connections of a messenger is guarded by one lock, which
// is never held over I/O and never taken for a message: handshakes run on
// goroutines of their own, frames on the cores of package dataplane. State
// changes follow the table in state.go; what an acceptor answers to a peer that
// is known already follows the tables in decide.go.
//
// Every state has one owner. A connection's sockets, queues and sequences belong
// to its core, the protocol to the messenger's lock; cores are added and
// removed (AddCore, RemoveCore) by one goroutine at a time, and connections move
// between them with their sockets, lossy ones too. What a failed core leaves
// behind is picked up by the others: lossless sessions reconnect from there,
// lossy ones are reset. A Dispatcher that panics ends the process.
//
// The names are those of the protocol text: client and server cookie,
// global_seq, connect_seq, CLIENT_IDENT, SESSION_RECONNECT.
package control
