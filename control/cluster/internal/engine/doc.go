// Package engine carries out operations on the objects of a cluster: it places each one, sends it to its OSD, and
// sends it again when the cluster changes, until it is answered. The rules are those of package machine;
// here are the connections, the maps, the memory and the callers.
//
// [Engine.Do] waits for an operation. A [Call], which is embedded in what it serves, does not:
// its Done runs when it is over.
//
// # Bounds
//
// At most Config.Operations are under way, with at most Config.Bytes of data. Beyond that callers wait in one line, in
// the order in which they came; an operation that is over lets the first ones in. One with more data than
// the bound goes alone. An operation that waits for the cluster, such as for an OSD that is down, counts as
// under way. A Call that waits in line is linked through itself.
//
// # Errors
//
// All are an *[Error]. ErrNotSent: no OSD has seen the operation. ErrUnknown: it was sent, and nobody knows whether it was carried
// out. ErrRefused: an OSD, or the map, says no; the errno is wrapped. Until an operation has ended in
// one of the ways but ErrUnknown its data must not change; after that never again, as it may be on its way to
// an OSD still.
//
// # Lock
//
// Engine.mu guards the machine and all that is written down as such. It is held while messages are given to
// connections, so that they keep their order, and never while a Done runs.
package engine
