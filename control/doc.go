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
// one. A messenger has both, and a session is in one of them (machine.go).
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
// What happens to a session is decided by the machine of its protocol, whose text, in
// package session or session1, leads to each rule. Here runner.go steps it and carries out what it says,
// accept.go and connect.go move the frames of a handshake between a socket and
// the machine (talk.go, talk1.go), notification_steps.go brings it the notifications of the cores. claim.go
// asks an address whether the peer that claims it is there.
//
// A Conn is what the user holds. conn.go has what all of it shares, and how it sends; its
// parts are types of their own, each in a file with its rules:
//
//	requests and their replies                calls.go             call.go, call_local.go, reply.go
//	memory that waits for data                posting.go           dispatcher.go, linger.go
//	messages that wait for Dispatcher.Queued  queue.go             dispatcher.go, dispatchline.go
//	what stops it from reading                flow.go              file_room.go
//	what it shows: state, error, Info, place  view.go              info.go, stats.go
//	its session, and what follows each step   runner.go            notification_steps.go, attempt_steps.go
//	the addresses that lead to it             registry.go          runner.go
//	what it has to do once the lock is free   lock.go              runner.go
//	attempts that fail alike                  stuck.go             runner.go
//	the wait for a peer that may come back    expire.go            runner.go
//	its end behind what was received          linger.go            runner.go
//	its moves from a core that ends           cores_leave.go       runner.go, cores_steps.go
//
// The last column says who uses it.
//
// Who owns what:
//
//   - A connection's socket, queues and sequences: its core. What the protocol
//     wants of them goes there as numbered events.
//   - The sessions of all connections, and the messenger's own state: the
//     messenger's lock (lock.go). It is held for changes of memory only: never
//     over I/O, a system call, a dispatcher, a probe, a log handler, a clock
//     or a source of random numbers, all of which come once it is free. Builds with
//     the tag "invariants" check that.
//   - What has to be done for a connection: its outbox, in the order of the steps
//     that decided it. One goroutine at a time empties it.
//   - A socket during its handshake: the goroutine of the attempt. It ends, and
//     changes nothing any more, when the machine has given the connection to another.
//   - Cores that come and go (AddCore, RemoveCore), and binding: one goroutine at a
//     time. Connections move between cores with their sockets, lossy ones too. What a
//     failed core leaves behind is picked up by the others: lossless sessions
//     reconnect from there, lossy ones are reset.
//   - How connections are steered to cores: internal/steering, under a lock of its
//     own.
//   - Who dials an address, and who waits for a turn to: dials.go, under a lock of its
//     own.
//
// No core takes the messenger's lock: MarkDown, State, Err, Info, Lookup and what
// sends never wait for it. A dispatcher that calls Connect does where nobody has
// dialled that address yet, for as long as somebody changes memory. A Dispatcher
// that panics ends the process.
//
// # Where things are
//
// Here is what an embedder uses, and what ties the rest together: Messenger
// (messenger.go), Conn (conn.go), Config, Policy, Dispatcher, the types of
// statistics (stats.go, snapshot.go). What has a state or a rule of its own is a
// package below, which knows no Messenger; its text says where to read on:
//
//	what                                      where                used by
//	what happens to a session                 session, session1    machine.go, runner.go, notification_steps.go
//	listening: ports, groups of listeners     internal/binding     bind.go, rebind.go, unbind.go
//	which core gets a new connection          internal/steering    steer.go, hint.go, placement.go
//	which core we choose                      internal/placement   placement.go
//	cores that come and go, who leaves one    internal/resize      cores_steps.go, cores_leave.go
//	the steps and the words of a hand-over    internal/handover    handover_predecessor.go, handover_successor.go
//	the socket that serves statistics         internal/statsock    snapshot.go
//	Unix sockets for one user's processes     internal/localsock   handover.go
//	frames before the session                 handshake            connect.go, accept.go, talk.go
//	the handshake of msgr1                    handshake1           talk1.go
//	numbered events in their order            dataplane/ordered    runner.go, notification_steps.go
//	sockets that fail by chance (Inject)      dataplane/inject     inject.go, dispatchline.go
//
// Files call those below them: what ties a Messenger together, then the attempts, then
// the runner of a session, then Conn and what one behaviour needs, then the lock. No file calls one
// that depends on it, but through four functions that New sets: lock.go ends
// who was marked down, expire.go whose peer does not come back, and runner.go begins
// attempts and checks of claims. Each of them says why.
//
// Above a Messenger stand the clients of a cluster (package cluster), msgrtest,
// which breaks connections on purpose, pair, which joins two for the tests of
// programs, durabletest, which holds those with a disk against its faults, and sim,
// which runs whole messengers over a simulated network and tries what may happen to them.
//
// # Glossary
//
// The terms are those of the protocol, of TCP and of schedulers, one word for one
// thing, here and in the packages below.
//
// Who talks:
//
//   - entity: who somebody is, as osd.3 or client.admin. Its type decides about the
//     policy, its number (gid) is the one in messages.
//   - address: type, IP, port and nonce. The nonce tells processes apart that had the
//     same IP and port one after the other.
//   - connector and acceptor: the side that dialled a socket, and the one that
//     accepted it. A peer may be both, on two sockets.
//   - connection: what a user holds (Conn). It outlives its sockets.
//   - socket: one TCP connection. Half-open: accepted, and its handshake is not
//     complete.
//   - attempt: the work on one socket until it is ready or has failed.
//   - session: what both sides know of each other across sockets: cookies, sequence
//     numbers, and the messages that are not acknowledged.
//
// What is on the wire:
//
//   - banner: the first bytes of both sides, with the features of the protocol.
//   - frame: one unit on the wire: a preamble with its tag and lengths, up to 4
//     segments, and an epilogue with crcs or authentication tags.
//   - message: the frame that users exchange: a header, front, middle and data. Control
//     frames are all others.
//   - handshake: banner, HELLO, authentication, signatures and, if both want it,
//     compression. Then the session is negotiated: an ident (CLIENT_IDENT,
//     SERVER_IDENT) opens one, a reconnect (SESSION_RECONNECT) resumes one.
//   - mode: crc (checked) or secure (encrypted).
//
// What a session counts:
//
//   - client cookie and server cookie: random numbers by which the two sides name a
//     session. 0 on lossy connections.
//   - global_seq: number of a connection attempt of one process. An attempt with a
//     lower one than was seen is stale.
//   - connect_seq: number of reconnects of one session.
//   - msg_seq: number of a message on its session. in_seq is the last one received,
//     out_seq the last one sent.
//   - ack: says up to which number messages have arrived. The sent list keeps them
//     until then; after a reconnect the rest is sent again (replay).
//
// What happens to it:
//
//   - policy: what a broken socket means. Lossy: the session is over. Lossless: it goes
//     on with the next socket.
//   - fault: a socket broke, or was given up because of what its peer did.
//   - back-off: the pause before the next attempt. Standby: no attempt until there is
//     something to send, or the peer comes.
//   - retry: RETRY and RETRY_GLOBAL, the answers to a connect_seq or global_seq that is
//     too low.
//   - reset: the peer has no such session. Full: cookies, numbers and queues are
//     dropped. Partial: the client cookie and the queues stay.
//   - race: both sides dial each other at once. One socket wins; WAIT tells the other
//     side to give up its own.
//   - replace, or take over: a peer comes back on a new socket, which gets the session;
//     the old socket is closed.
//   - mark down: the user closes the connection.
//
// What runs it:
//
//   - core: an OS thread with a driver (a ring, or epoll) and the sockets that it owns.
//   - framer: the protocol on a socket. The loop of a core hands it bytes and asks it
//     for writes.
//   - turn: one round of a core. Mailbox: what others ask of it, for its next turn.
//   - migrate: a socket or a session goes to another core. Snapshot: what a core tells
//     of a session when it hands it back.
//   - drain: take nothing new, and finish what is there.
//   - steer: have the kernel bring a new connection to a core: by pin (a table of
//     peers), by owner hint (the source port), by CPU, or by its own hash.
//   - hand-over: listeners and sessions go to another process, the successor.
//   - throttle: a bound that makes connections stop reading. Budget: what it has left.
//     Share: the part of a budget that others cannot take from a connection.
package control
