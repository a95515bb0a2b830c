// Package control is the messenger that users embed: connections with a policy,
// handshakes, sessions that survive their TCP connections, and the dispatch of
// messages.
//
// A [Messenger] binds addresses, connects to peers and accepts from them. A [Conn] is one
// connection. A [Dispatcher] gets the messages and events of all connections. v2:
// addresses speak msgr2, v1: addresses speak msgr1; one messenger has both.
//
// # Serve
//
//	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
//	err = m.Start(&control.Dispatcher{Fast: func(c *control.Conn, r *control.Message) bool { ... }})
//	addrs, err := m.Bind(addr) // the addresses with their ports and nonces
//
// Fast, and the handlers of ByType, one for each type of message, run on the core that owns
// the connection and must not block. Queued runs on a goroutine. A message is valid during the
// call: Retain keeps it, Release gives it back, Clone sends it on.
//
// # Connect and send
//
//	c, err := m.Connect(addr, wire.OSD) // returns at once; WaitReady waits for the session
//	err = c.Send(control.NewMessage(1000, front, data))
//
// At the bound of the queue Send returns [ErrQueueFull], SendContext waits, and Room tells
// when to try again. A lossy connection does not come back: the next Connect makes a new one.
//
// # Call and reply
//
//	reply, err := c.Call(ctx, request) // the client; reply.Release() when it has been read
//	err = c.Reply(request, answer)     // the server, while it dispatches the request
//	due := c.Later(request)            // or: due.Send(answer) at any time, from any goroutine
//
// ctx should have a deadline. A reply that is not released counts against
// Config.Receiving.Bytes; at that bound connections stop reading: the log, Info and Stats show
// it, and a build with the tag invariants logs the stacks that hold messages. Conn.Start
// needs no goroutine for each request. Conn.PostBuffer and WithBuffer have data read from the
// socket into memory of the user.
//
// # Choose a policy
//
// For a service whose sessions survive, both sides use Config.Surviving:
//
//	m, err := control.New(control.Config{Name: name}.Surviving())
//
// Otherwise each end has a policy for each type of peer (Config.Policies, Config.Default). The
// policy of the acceptor decides whether the session is lossy.
//
//	you want                                              dial with            accept with
//	an end when the TCP connection breaks (the default)   LossyClient          StatelessServer
//	... and one connection for each address               LossyClient          StatelessRegisteredServer
//	every message once and in order, over reconnects      LosslessClient       StatefulServer
//	... between daemons that both dial                    LosslessPeer         LosslessPeer
//	... and our session reset when the peer has lost it   LosslessPeerReuse    LosslessPeerReuse
//
// Dispatcher.Reset says that a connection is over, Dispatcher.RemoteReset that the peer has
// lost its session, Dispatcher.Fault that the peer is away and the session waits.
//
// # Survive restarts
//
// Messenger.HandOver and [TakeOver] give listeners and lossless sessions to a new process,
// and lose no message. After a restart without them the sessions are gone: RemoteReset tells
// the peers, and calls with a written request fail with [ErrSessionLost]. A session ends when
// its peer is away for Policy.StandbyAge, or does not answer for Policy.GiveUpAfter.
//
// # Drain
//
// Messenger.Drain, and Conn.Drain for one connection, wait for calls and for replies that Later
// has promised, deliver queued messages, and end the streams: peers see Dispatcher.Fault or
// Reset. MarkDown and Shutdown drop queued messages.
//
// # Files and cores
//
// Package loop has the cores and files. A handler finds its core by Conn.Core, and reads and
// writes files there without waiting: [loop.File], and [loop.CoreFile], which is open on each
// core; example_file_test.go is a block server. Conn.ReadReply bounds the memory of replies, and
// Conn.Hold has a connection wait for the disk. [loop.Local] keeps state of each core without a
// lock, [loop.Core.Post] runs a task on another core, and [loop.Core.Offload] work that blocks.
// AddCore and RemoveCore change the number of cores while connections go on.
//
// # Watch
//
// The library does not print or exit. Config.Logger gets changes of state, Stats and ServeStats
// have the counts, Config.Diagnostics.Tracer gets each frame. An [*Error] has Advice. Every
// queue has a bound, which Config.Bounds lists. A Dispatcher that panics ends the process.
//
// # Elsewhere
//
// Package cluster has clients of a Ceph cluster. For tests, pair joins two messengers in memory
// and breaks their network and disks, and msgrtest plays a peer frame by frame. The text of
// internal/sessions explains the inside; CONTRIBUTING.md has the glossary.
package control
