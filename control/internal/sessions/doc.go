// Package sessions has the sessions of a messenger: it makes and accepts connections, steps
// the machines of their protocols, and keeps each session over faults, other cores and
// other processes. It knows no control.Conn, no Messenger, no Dispatcher and no code of an
// embedder; user.go has the two interfaces by which it tells package control what happens,
// and says what control may ask.
//
// A [Manager] has what the connections of a messenger share: its identity, listeners and
// cores, and one lock. A [Conn] is one connection, as sessions have it. It outlives its
// sockets.
//
// # What decides and what acts
//
// The machine of a protocol (packages session and session1) decides. It has no I/O: it gets
// an event and returns actions. machine.go joins the two protocols; runner.go runs a step
// under the lock and carries out its actions:
//
//   - what changes memory, at once, under the lock;
//   - what is for the handler, a timer or the log, by the outbox of the connection;
//   - what is for the socket of a handshake, by the goroutine of the attempt, which gets it
//     as the outcome of its step.
//
// Events come from the attempts (dial.go, accept.go), from the notifications of the cores
// (notification.go), from timers, and from what the Manager is asked.
//
// # Between a session and its core
//
// A session belongs to the lock, its socket, queues and sequences to a core. Neither waits
// for the other while it has what the other needs. Each of the five ways between them
// answers a question that the others do not:
//
//   - The lock (package steplock): who may change a session. It is private: control cannot hold it,
//     and so neither can an embedder. It is held for changes of memory only, never over I/O, a
//     system call, a probe, a log handler, a clock or a source of random numbers. A core does
//     not take it, but for Connect. Builds with the tag "invariants" check all of that.
//   - The outbox of a connection (package steplock): in which order is done what was decided, once the
//     lock is free. Without it two goroutines could step in one order and call the handler in
//     the other.
//   - The numbers of events and notifications (dataplane/ordered): in which order they were
//     meant. A handler changes cores, so two mailboxes, or two cores, may bring what belongs
//     together the wrong way round.
//   - The goroutine of notifications (notification.go): who takes the lock for a core. A core
//     that waited for it would stop all of its connections. One goroutine is enough, as a
//     step changes memory only.
//   - The channels of an attempt (attempt.go): how a goroutine that has a socket waits for
//     the handler, which has to end the last socket (suspended) and to come to the core of the
//     new one (moved). A notification would reach it too, at the price of two more switches
//     between threads for each accepted connection.
//
// # Where things are
//
//	user.go          the seam to package control: Owner, User
//	config.go        Config; policy.go, errors.go
//	manager.go       Manager: New, Start, Close, what it is asked
//	conn.go          Conn; view.go: what it shows without the lock
//	connect.go       Connect; loopback.go
//	dial.go          attempts of ours: dials.go (turns), hint.go (source ports)
//	accept.go        accepted sockets; accepting.go: what is known of them, and the door
//	attempt.go       what both kinds of attempts share; talk.go, talk1.go: msgr2 and msgr1
//	runner.go        a step and its actions; machine.go, notification.go
//	registry.go      which connections go by an address; claim.go: who says that it has one
//	linger.go        the end of a connection behind what was received
//	expire.go        sessions that wait for their peer; stuck.go: attempts that fail alike
//	bind.go          listening; identity.go: which addresses are ours
//	cores.go         cores that come and go; steer.go: which core gets a connection
//	predecessor.go   a hand-over to another process; successor.go: from one
//
// A name that ends with Locked is of a function whose caller holds the lock.
package sessions
