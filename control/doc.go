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
// An address says which protocol is spoken there: v2: msgr2, v1: msgr1, the older
// one. A messenger has both, and a session is in one of them.
//
// # What to know
//
//   - A dispatcher's Fast runs on the core and must not block; Queued runs on a
//     goroutine. Both get a message that is valid during the call: Retain keeps it,
//     Release gives it back, Clone sends it on.
//   - Every queue is bounded; Config.Bounds, and "ringmsgr doctor --limits", list the
//     bounds. At them Send returns ErrQueueFull, SendContext waits, Room tells when to
//     try again, and connections stop reading. dataplane/budget.go says why nothing
//     waits for ever.
//   - Who knows what comes can post memory for it (Conn.PostBuffer, WithBuffer): data is
//     read there from the socket, and the memory can be taken back at any moment.
//   - Handlers reach files on their core without waiting (File, Core.OpenFile).
//     File.ReadReply bounds the memory of replies, File.Hold has connections wait for the
//     disk; the example of File is a block server.
//   - Nothing is printed and nothing exits. Give Config.Logger a *slog.Logger to hear of
//     state changes; Stats counts the rest, and Config.Tracer sees each frame.
//
// # Inside
//
// Here is what an embedder holds. A Conn sends by the handler of its connection (package
// dataplane) and gets what was received from it: neither takes a lock that a messenger has.
// What happens to its session is decided below, in internal/sessions, which knows no Conn,
// no Messenger and no callback: user.go there is the seam, and dispatcher.go has
// this side of it. The rest of a Conn is in types of their own, each in a file with its
// rules:
//
//	requests and their replies                call.go, reply.go
//	memory that waits for data                posting.go
//	who gets a message, and the events        dispatcher.go
//	messages that wait for Dispatcher.Queued  dispatcher.go
//	its end in good order                     drain.go
//	what its handlers have of their core      core.go, file.go
//
// Who owns what:
//
//   - A connection's socket, queues and sequences: its core.
//   - The sessions of all connections, and the messenger's own state: the lock of
//     internal/sessions. No core takes it, but for Connect. MarkDown, State, Err, Info,
//     Lookup and what sends never wait for it. A dispatcher that calls Connect does where
//     nobody has dialled that address yet, for as long as somebody changes memory.
//   - Requests and postings of a connection: its core. Messages that wait for Queued: a lock
//     of their connection.
//
// Cores that come and go (AddCore, RemoveCore) and binding run one at a time. Connections
// move between cores with their sockets, lossy ones too. What a failed core leaves behind is
// picked up by the others: lossless sessions reconnect from there, lossy ones are reset. A
// Dispatcher that panics ends the process.
//
// # Where things are
//
//	what                                      where
//	sessions: all that happens to a Conn      internal/sessions
//	the rules of a session, without I/O       session, session1
//	frames before the session                 handshake, handshake1
//	statistics, and texts about failures      internal/stats
//	listening: ports, groups of listeners     internal/binding
//	which core gets a new connection          internal/steering
//	which core we choose                      internal/placement
//	cores that come and go, who leaves one    internal/resize
//	who may be half open                      internal/door
//	the steps and the words of a hand-over    internal/handover
//	the socket that serves statistics         internal/statsock
//	Unix sockets for one user's processes     internal/localsock
//
// Above a Messenger stand the clients of a cluster (package cluster), msgrtest,
// which breaks connections on purpose, pair, which joins two for the tests of
// programs, durabletest, which holds those with a disk against its faults, and sim,
// which runs whole messengers over a simulated network and tries what may happen to them.
//
// The terms are in the glossary of CONTRIBUTING.md.
package control
