// Package handover gives the listeners and sessions of one process to another one. It
// has the steps of both sides, with their order, bounds in time and failures, and the
// conversation between them. It knows no messenger: [Pass] has a [Predecessor] carry
// out its steps, [Take] a [Successor].
//
//	step                  what the messenger does                     if something fails from here on
//	prepare               duplicates listeners and steering           nothing has changed
//	wait for handshakes   accepts nothing more                        Undo: accepts again
//	freeze                all lossless sessions stand still, at once  Undo: they go on, on new sockets
//	wait for rest         attempts, sockets and dispatchers end       the same
//	send sessions         each leaves its core                        the same
//	committed             Finish: closes its end of everything        it is the successor's
//
// [State] is the progress of the hand-over of one messenger, and holds back actions that
// must not begin meanwhile.
//
// A hand-over is a stream of records in both directions, each a type, a length of 32 bits
// and that number of bytes; numbers are little-endian.
//
//	successor                          predecessor
//	hello  (version, who, nonce)   ->
//	                               <-  offer (identity, numbers of what follows)
//	                               <-  listeners, steering (with descriptors)
//	ready                          ->
//	                               <-  session, its messages, their payload; ...
//	                               <-  done (how many there were)
//	committed                      ->
//
// Either side may send refused, with a text, instead of its next record. The
// write of committed decides: before it everything belongs to the predecessor,
// after it to the successor.
//
// The steps of both sides, and State, are in steps.go; their link is in link.go, and the
// records are in record.go. Everything that a peer may send is bounded, and a malformed record
// is an error that wraps [ErrHandOver].
package handover
