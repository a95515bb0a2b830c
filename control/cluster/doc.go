// Package cluster holds the clients of a cluster: what stands on the messenger,
// as a user's program does, and is no part of it.
//
//	rados      objects: write, read, stat, remove; on internal/osdmap, the map of the cluster,
//	  |        and internal/crush, which places by it
//	mon        monitors: tickets, maps, commands; and a small monitor for tests and demonstrations
//	  |
//	control    the messenger
//
// Each package uses those below it, and of the messenger what any program may
// use: control, auth, handshake and wire, but none of its internal packages.
// The messenger needs none of them. The linter checks both.
//
// There is no code here.
package cluster
