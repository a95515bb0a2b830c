// Package loop moves bytes between sockets, files and protocols. It knows bytes, budgets
// and deadlines; the protocol knows frames.
//
// A Core is one OS thread with one uring.Driver. It owns its listeners, sockets, buffers
// and timers; no other goroutine touches them. Work for a core goes through its mailbox
// (Do, Post). One turn of a core is: tasks, timers, one gathered write for each socket
// that has something to send, one system call that submits and waits, the completions,
// and visits to the sockets that have bytes to be read, first come first served. The
// visits of a turn are bounded in bytes, frames and time (read.go): no connection starves
// the others, and received payload is sent on while it is in the cache. A Plane is a group
// of cores.
//
// On a ring each socket chooses how it receives (receive.go): small frames through buffers
// that the ring fills, all else by reads into place when the socket is ready.
//
// A connection begins as a Link: exact reads and writes for a handshake on an ordinary
// goroutine. Link.Carry gives its Socket to a Framer, the protocol. The loop hands it
// received bytes, whole batches at a time, and asks it for one gathered write when it has
// something to send. From then on everything happens on the core, by plain calls: the state
// of a framer needs no lock.
//
//	Framer.Feed    received bytes in; it reports the taken frames (Taken)
//	Framer.Gather  queue in, one gathered Write out
//	Socket.Mark    there is something to write
//	Socket.Pause   a budget is full: read on when it has room (Throttles)
//	Socket.Hold    read on with Release
//	Socket.Rest    read on with EndRest, or with Release if Hold comes meanwhile
//	Socket.Fault   the protocol is broken: end the socket
//
// The loop gathers an incomplete frame (part.go), in a buffer of the core and without a copy
// if it is large; a framer that wants it elsewhere is a Placer. A socket whose peer has ended
// its direction of the stream is half-closed: it stays until all pending bytes are written,
// or for as long as its framer decides (HalfCloser). A Local shares memory among the framers
// of a core, a Loan brings memory back from other goroutines. Package dataplane has two
// framers; the example is the smallest one.
//
// A Listener that refuses many connections (Link.Refuse) pauses in between, so that refusing
// takes a bounded part of its core.
//
// # Files
//
// The core of a File reads and writes it, and never waits: a request (FileOp) goes to the
// kernel in the system call of the turn, or in one of the next (file_turn.go), together with
// those of the network, and its Done is called on the core at its end. Its user embeds it, so
// it allocates nothing. Plane.OpenFile opens a file off the core, as that may wait for the
// disk; Core.AttachFile gives the file to a core.
//
//	File.ReadAt     into memory of the caller's
//	File.ReadBuffer into a buffer of the core's, to be sent without a copy (Write.Hold)
//	File.WriteAt    Written: in the page cache; Committed: durable by a sync that
//	                it shares; Through: durable by itself, with direct I/O
//	File.Sync       writes that have ended before are durable
//	File.Allocate   reserve, so that later writes neither grow the file nor find it full
//
// Direct I/O (FileOptions.Direct) needs aligned memory, offsets and lengths; otherwise a
// request fails with an error that names the misaligned one. Buffers of a core of 4 KiB or
// more are aligned. Once the core has such a file they stay pinned for direct I/O
// (uring.FileDriver.RegisterMemory): buffers of up to 4 MiB, at most 64 MiB of a core, and no
// more than RLIMIT_MEMLOCK allows.
//
// Writes that wait for durability share syncs, which are bounded in time and bytes. A failed
// sync poisons the file (file_commit.go); any other error belongs to its request alone.
//
// The kernel has a bounded number of requests of a file and of a core; the rest waits in
// order (CoreStats.Files). A framer then stops its socket with Socket.Hold: File.Full and
// File.AwaitRoom say when.
//
// The buffers of ReadBuffer are bounded in bytes until they are given back. A server reads
// for an Account (FileOp.For), one for each connection; accounts take turns (file_account.go).
//
// # Cores
//
// Cores come and go at run time. A new core (Plane.AddCore) begins empty. A removed core
// (Plane.RemoveCore) ends when it is empty: an open socket migrates (Socket.Detach,
// Core.Attach), that is, it comes to rest on one core and goes on with the next byte on the
// other; a Listener moves without being closed. A core whose driver breaks has failed: its
// connections fault, its listeners go to another core, and the error names it. A panic in a
// callback ends the process, as the state after half of a turn cannot be trusted; a callback
// that ends its goroutine fails the core.
package loop
