// Package rados is a small client of a cluster's object store: it writes, reads,
// stats and removes whole objects, over a messenger that its user made.
//
// It shows what a program on top of package control looks like, and is enough for
// tests and simple tools. It is no librados: an operation is one object as a
// whole, and there are no snapshots, locators or namespaces. It holds the map of the
// cluster and places each operation itself (place.go); where a new map moves an object,
// the operation is sent again.
//
// [Dial] makes all the parts from a configuration. A program that has a
// messenger of its own uses [New] instead.
package rados
