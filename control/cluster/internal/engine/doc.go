// Package engine carries out operations on the objects of a cluster: it places each one, sends it to its OSD,
// and sends it again when the cluster changes, until it is answered. The rules are those of package machine;
// here are the connections, the maps, the memory and the callers.
//
// [Engine.Do] waits for an operation. A [Call] does not: its Done runs when it is over.
//
// # Shards
//
// Each OSD has a shard: a machine, a connection, and a lock for both. One more shard has the operations that
// no OSD serves now. The caller places an operation by the newest map, an atomic pointer, and pushes it to
// its shard, whose task runs on the core of its connection. That core takes all pushed operations, sends
// them, and gets the answers: in a steady state it alone takes the lock of the shard, and cores and callers
// share only the words of the queues and of the room. Without a connection nothing can be sent, and the
// caller serves the shard.
//
// A new map stops the world for a moment: all shards are locked, take the pushed operations, take the map,
// and adopt the operations that belong to them. After its push a caller reads the map pointer again. If the
// map has changed, the push may have come too late for that: then the caller has the shard take the operation
// and bring it to its new shard, before Start returns. So operations on one object keep their order if one
// goroutine begins them, or goroutines that wait for each other.
//
// # Bounds
//
// At most Options.Operations are under way, with at most Options.Bytes of data. Beyond that callers wait in one
// line, in the order in which they came; an operation that is over lets the first ones in. One with more data
// than the bound goes alone. An operation that waits for the cluster, as for an OSD that is down, counts as
// under way. A Call that waits in line is linked through itself. Below the bounds the room is one atomic word
// for all: shares of the shards would make callers wait while others have room.
//
// # Who waits
//
//	waits                    for                        freed by
//	a caller                 room                       an operation that is over, or the end of its context
//	an operation             its shard                  the core, which waits for nothing but a lock
//	a submission             moving, while a map comes  its holder, which waits only for the locks of shards
//	the holder of moving     the lock of a shard        its holder, which waits for none of these
//	a session                room in the queue          the write of the connection
//	an operation that is held  the cluster              a map, an OSD, or the end of its context
//	a call that is answered  its data, in the queue     the end of that connection, which it hangs up
//	                         of an OSD that had it
//	                         before
//
// The order of the locks is moving, shards, then those of the line, of a watch and of the messenger, under
// which no other is taken. Only the holder of moving locks two shards. No lock is held while a Done runs, and
// none while a call is let in from the line.
//
// # Errors
//
// All are an *[Error] with the outcome of the operation. Until it has ended, and after ErrUnknown ever, its
// data must not change, as it may be on its way to an OSD still.
package engine
