// Package cluster holds the clients of a cluster. They use the messenger like a program of a
// user, and are no part of it.
//
//	rados      objects: write, read, stat, remove; on internal/osdmap, the map of the cluster,
//	  |        and internal/crush, which places by it
//	mon        monitors: tickets, maps, commands; and a small monitor for tests and demonstrations
//	  |
//	control    the messenger
//
// Each package uses packages below it, and of the messenger the public ones: control, auth and
// wire. The messenger needs none of them. The linter checks both.
//
// There is no code here.
package cluster
