// Package sessions has the sessions of a messenger: it makes and accepts connections, steps
// the machines of their protocols, and keeps each session over faults, other cores and
// other processes. It knows no control.Conn, no Messenger, no Dispatcher and no callback of an
// embedder for messages and events. It calls the clock, the source of random numbers, the
// logger, the probe, the tracer and the authentication that Config has, none of them under the
// lock. user.go has the seam: package control gets events by Owner and User, and calls only
// methods of Manager and Conn.
//
// A [Manager] has the shared state of a messenger's connections: identity, listeners, cores,
// and one lock. A [Conn] is the session side of one connection. It outlives its sockets.
//
// # What decides and what acts
//
// The machine of package session decides. It has no I/O: it gets an event and returns actions.
// runner.go runs a step under the lock and carries out its actions:
//
//   - A change of memory happens at once, under the lock.
//   - Work for the handler, a timer or the log goes through the outbox of the connection.
//   - Work for the socket of a handshake is done by the goroutine of the attempt, which
//     gets it as the outcome of its step.
//
// Events come from the attempts (dial.go, accept.go), from the notifications of the cores,
// from timers, and from calls of the Manager's methods.
//
// # Who owns what
//
//   - A core owns the sockets, queues and sequences of its connections, and their requests
//     and postings.
//   - The lock of this package guards the sessions of all connections, and the state of the
//     Manager. A core takes it only in Connect, unless the address was dialled before.
//     MarkDown, State, Err, Info, Lookup and Send never wait for it.
//   - A lock of each connection guards the messages that wait for Dispatcher.Queued.
//
// AddCore, RemoveCore and binding run one at a time. Connections move between cores with
// their sockets, lossy ones too. When a core fails, lossless sessions reconnect from another
// core, and lossy ones are reset.
//
// # Between a session and its core
//
// The lock guards a session; a core owns its socket. Neither waits for the other while it
// holds something that the other needs. Five things connect them, each for a reason of its own:
//
//   - The lock (package steplock) says who may change a session. It is private: neither
//     control nor an embedder can hold it. It is held for changes of memory only, never over
//     I/O, a system call, a probe, a log handler, a clock or a source of random numbers.
//     Builds with the tag "invariants" check that.
//   - The outbox of a connection (package steplock) keeps the order of the steps when their
//     actions run without the lock. Without it two goroutines could step in one order and
//     call the handler in the other.
//   - The numbers of events and notifications (dataplane.Ordered) keep their order. A handler
//     changes cores, so two mailboxes, or two cores, may swap them.
//   - The goroutine of notifications (runner.go) takes the lock for a core. A core that
//     waited for the lock would stop all of its connections. One goroutine is enough, as a
//     step changes memory only.
//   - The channels of an attempt (dial.go) report to its goroutine that the handler has
//     ended the last socket (suspended), and that it has come to the core of the new one
//     (moved). A notification would cost two more switches between threads for each accepted
//     connection.
//
// # Where things are
//
//	user.go          the seam to package control: Owner, User
//	config.go        Config, Policy, the errors
//	manager.go       Manager: New, Start, Close, and the calls of package control; random numbers
//	conn.go          Conn, and its state that is read without the lock
//	connect.go       Connect, and the connection to ourselves
//	dial.go          attempts: the common part, and ours, with their turns and source ports
//	accept.go        accepted sockets, and the door
//	protocol.go      the differences between msgr2 (msgr2.go) and msgr1 (msgr1.go)
//	runner.go        a step and its actions; the notifications of the cores
//	registry.go      connections by address, and peers that claim one
//	expire.go        peers that are gone: sessions that wait, or dial; attempts that fail alike;
//	                 the end of a connection, after its received messages are dispatched
//	bind.go          listening, and our addresses
//	cores.go         cores that come and go; the core of a new connection
//	handover.go      a hand-over to another process, and from one
//
// Packages beside this one:
//
//	session                  the rules of a session, without I/O; session2, session1: msgr2 and msgr1
//	handshake                frames before the session; handshake2, handshake1: msgr2 and msgr1
//	internal/stats           statistics, and texts about failures
//	internal/binding         listening: ports, groups of listeners
//	internal/steering        the kernel's choice of a core; internal/placement: ours
//	internal/resize          cores that come and go
//	internal/door            bounds of half-open connections
//	internal/handover        steps and messages of a hand-over
//	internal/statsock        the socket that serves statistics
//	internal/localsock       Unix sockets for the processes of one user
//
// The caller of a function whose name ends with Locked holds the lock.
package sessions
