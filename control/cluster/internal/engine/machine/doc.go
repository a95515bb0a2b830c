// Package machine has the rules by which a client's operations reach the OSDs of a cluster: where each is
// sent, when it is sent again, when it waits, and when it is over. It does no I/O, has no
// goroutine and no clock: package engine gives it events and carries its actions out.
//
// A [Machine] has no lock. Its user holds one around each event and the actions that follow from it, as
// operations must reach the connections in the order in which the machine sends them.
//
// The rules:
//
//   - Operations have transaction ids in the order of their submission, over all OSDs. One that is sent again keeps its id,
//     by which the OSD knows that it has carried it out. Only a redirect and EAGAIN give a new one.
//   - An operation is sent again, in the order of the ids, when its session was lost, when a map gives its
//     object to another group, its group another primary or the primary another place, splits or merges
//     the group, or wants it (forced); when maps are missing in between, and when it waited while it was under way.
//   - No operation on an object is sent while an earlier one on it waits. Those that may exceed a full
//     pool do not wait behind those that may not.
//   - An answer counts if it comes on the session of the operation and answers its last attempt.
//
// The files:
//
//	machine.go  Machine, Op, Action; submit and cancel
//	place.go    the target of an operation, and whether a map moves it
//	maps.go     a new map; pools that do not exist
//	hold.go     why an operation waits; what can be sent now is sent
//	session.go  sessions: up, lost, refused, full; answers
//	backoff.go  what an OSD does not want now
//	watch.go    watches and notifies
package machine
