// Package loop moves bytes between sockets, files and protocols. It knows bytes, budgets
// and deadlines, and leaves to the protocol what a frame is.
//
// A Core is one OS thread with one uring.Driver. It owns its listeners,
// sockets, buffers and timers; no other goroutine touches them. Work for a core
// goes through its mailbox (Do, Post). One turn of a core is: tasks, timers, one
// gathered write for each socket that has something to send, one system call
// that submits and waits, the completions, and visits to the sockets that have
// bytes to be read, first come first served. The visits of a turn are bounded in
// bytes, frames and time (read.go): no connection starves the others, and what was
// received is sent on while it is in the cache. A Plane is a group of cores.
//
// On a ring each socket chooses how it receives (receive.go): small frames come through
// buffers that the ring fills, without a system call for each; a large one is read into its
// place when the socket is ready, and so is what comes to a handshake, to a socket that is
// mostly idle, or to one that was stopped. Socket.Receives says which, and why.
//
// A connection begins as a Link: exact reads and writes for a handshake that
// runs on an ordinary goroutine. Link.Carry gives its Socket to a Framer, which
// is the protocol: the loop hands it the bytes that have come, whole batches at
// a time, and asks it for one gathered write when it has something to send. From
// then on everything happens on the core, by plain calls: what a framer owns
// needs no lock.
//
//	Framer.Feed    received bytes in; it reports the frames that it has taken (Taken)
//	Framer.Gather  queue in, one gathered Write out
//	Socket.Mark    there is something to write
//	Socket.Pause   a budget is full: read on when it has room (Throttles)
//	Socket.Hold    read on with Release
//	Socket.Rest    read on with EndRest, or with Release if Hold comes meanwhile
//	Socket.Fault   the protocol is broken: end the socket
//
// A frame of which a part has come is gathered by the loop (part.go), in a buffer of the core
// and without a copy if it is large; a framer that wants it elsewhere is a Placer. A socket
// whose peer has ended its direction of the stream is half-closed: it stays until what is
// pending is written, or as long as its framer says (HalfCloser). A Local shares memory
// among the framers of a core, a Loan brings memory back from other goroutines. The package
// dataplane has two framers; the example is the smallest one.
//
// A Listener whose connections are refused in numbers (Link.Refuse) pauses in between
// so that refusing takes a bounded part of its core.
//
// # Files
//
// A File is read and written by the core that has it, which never waits: a request
// (FileOp) goes to the kernel with those of the network, in the system call of the
// turn, and its Done is called on the core when it has ended. A request is embedded
// in what it serves and allocates nothing. Plane.OpenFile opens, off the core, which
// may wait for the disk; Core.AttachFile makes the file one of the core's, File.Detach
// lets it go to another core. A system call begins some of the requests only, and the next
// one more of them (file_turn.go): what the page cache has is sent while the processor's cache
// has it, too, and frames that need no file do not wait long for those that do.
//
//	File.ReadAt     into memory of the caller's
//	File.ReadBuffer into a buffer of the core's, to be sent without a copy (Write.Hold)
//	File.WriteAt    Written: in the page cache; Committed: durable by a sync that
//	                it shares; Through: durable by itself
//	File.Sync       durable is what has ended before
//	File.Allocate   reserve, so that later writes neither grow the file nor find it full
//
// Direct I/O (FileOptions.Direct) wants aligned memory, offsets and lengths: what is not
// fails with an errAlign that names them.
// Buffers that a core lends are aligned from 4 KiB on, and stay pinned for direct I/O once
// the core has such a file (uring.FileDriver.RegisterMemory): those up to 4 MiB, 64 MiB of
// a core together, and no more than RLIMIT_MEMLOCK allows.
//
// Writes that wait for durability share syncs (file_commit.go), which are bounded in time
// and bytes. A sync that fails poisons the file (PoisonError): nothing that was not
// durable is reported as such, now or later, and the sync is not made again. Any other
// error belongs to its request alone.
//
// The kernel has a bounded number of requests, of a file and of a core; the rest waits in
// order (CoreStats.Files). File.Full and File.AwaitRoom are for whoever should then stop
// taking more, by Socket.Hold.
//
// The buffers of ReadBuffer are bounded in bytes, until they are back from whoever has them
// (Config.FileBytes). Who reads for a peer says so by an Account (FileOp.For), one for each
// connection: its reads wait while its peer does not take what was read before, and
// the reads of others do not. Accounts take turns (file_account.go).
//
// # Cores
//
// Cores come and go while everything runs. A new one (Plane.AddCore) begins
// empty. One that is removed (Plane.RemoveCore) ends when everything has left
// it: an open socket migrates (Socket.Detach, Core.Attach), which means that it is
// brought to rest on the one core and goes on with the next byte on the other; a
// Listener moves without being closed. A core whose driver breaks has failed: its
// connections fault, its listeners go to another core, and the report names it. A
// callback that panics ends the process, as half of a turn is nothing to go on
// from; one that ends its goroutine fails the core.
package loop
