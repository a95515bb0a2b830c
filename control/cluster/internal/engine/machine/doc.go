// Package machine has the rules by which a client's operations reach the OSDs of a cluster: where each is
// sent, when it is sent again, when it waits, and when it is over. It does no I/O, has no
// goroutine and no clock: package engine gives it events and carries its actions out.
//
// Each OSD has a [Machine], and so have those operations that no OSD has now. A machine has no lock. Its user
// holds one around each event and the actions that follow from it, as operations must reach the connection in
// the order in which the machine sends them.
//
// [Aim] places an operation by a map, and Machine.Submit takes it. All machines take each map at the same
// time, behind what was placed by the one before; then each adopts what others have that belongs to it
// (Machine.Leaving). So an object, with all operations on it that have an order, is in one machine at a time.
//
// The rules:
//
//   - Operations on an object have transaction ids in the order of their submission. One that is sent again
//     keeps its id, by which the OSD knows that it has carried it out. Only a redirect and EAGAIN give another.
//   - An operation is sent again, in the same order, when its session was lost, when a map gives its
//     object to another group, its group another primary or the primary another place, splits or merges the
//     group, or wants it (forced); when maps are missing in between, and when its OSD held it back (back-off).
//     One that went to a replica is, too, when a map begins another interval of its group.
//     A pause holds back what is not under way yet: OSDs do not know of it.
//   - It is also sent again when the cluster or its pool becomes full, or has room again. An OSD drops what was
//     sent before it was full, if that writes or has RWOrdered, and what it has no room for. It finds out
//     itself what writes: a method of a class does that in a read, too. With FullTry it drops nothing.
//   - No operation on an object is sent while an earlier one on it waits. Those that may exceed a full
//     pool, and reads, do not wait behind writes that may not; reads with osdop.RWOrdered do. Pings of watches wait behind none.
//   - An answer counts if it comes on the session of the operation and answers its last attempt.
//
// The files:
//
//	machine.go  Machine, Op, Action; submit and cancel
//	line.go     operations in their order
//	place.go    the target of an operation, and whether a map moves it
//	maps.go     a new map; pools that do not exist
//	handover.go operations and watches that go to the machine of another OSD
//	hold.go     why an operation waits, and when it is sent
//	session.go  the session: up, lost, refused, full; answers
//	backoff.go  ranges of objects that an OSD refuses
//	watch.go    watches and notifies
package machine
