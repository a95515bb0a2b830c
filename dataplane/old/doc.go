// Package dataplane moves frames: cores, the sockets that they own, and the
// I/O side of each connection.
//
// A Core is one OS thread with one uring.Driver. It owns its listeners,
// sockets, buffers, timers and the Handlers whose connections are open on it;
// no other goroutine touches them. Work for a core goes through its mailbox. One
// turn of a core is: tasks, timers, one gathered write for each connection
// that has something to send, one system call that submits and waits, the
// completions. The work of a turn is bounded, so that no connection can
// starve the others.
//
// A connection begins as a Link, exact reads and writes for a handshake that
// runs on an ordinary goroutine. When the handshake is done the protocol gives
// the Link to a Handler (Open), which carries messages until the socket
// faults; then the protocol decides what happens to the session. Protocol and
// Handler talk by numbered events, so that their order survives a move of the
// Handler to another core.
//
// Cores come and go while everything runs. A new one (Plane.AddCore) begins
// empty. One that is removed (Plane.RemoveCore) ends when everything has left
// it: a Handler migrates with its open socket, which is brought to rest on the
// one core and goes on with the next byte on the other; a Listener moves without
// being closed. A core whose driver breaks has failed: its connections fault,
// its listeners go to another core, its handlers can be moved, and the report
// names it. A callback that panics ends the process, as half of a turn is
// nothing to go on from; one that ends its goroutine fails the core.
//
// The package knows frames, acknowledgements and sequence numbers. It does not
// know why a session is reset or replaced: that is package control.
package dataplane
