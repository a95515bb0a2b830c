package main

import (
	"math/bits"
	"math/rand/v2"
)

// index has the keys of a shard in their order, each with the place of its value: a skip
// list. It is in memory alone, and made from the log at the start.
type index struct {
	head node
	path [levels]*node // those before what seek has found, by level
}

const levels = 24

// node is a key.
type node struct {
	key     string
	in      *segment // nil: there is no value that was acknowledged
	off     int64
	size    int64 // of the record
	pending int   // records of the key that are on their way to the disk
	next    []*node
}

// seek returns the first key that is not below key; nil: there is none.
func (x *index) seek(key []byte) *node {
	at := &x.head
	for l := levels - 1; l >= 0; l-- {
		for n := at.next[l]; n != nil && n.key < string(key); n = at.next[l] {
			at = n
		}
		x.path[l] = at
	}
	return at.next[0]
}

// find returns the node of key; nil: there is none.
func (x *index) find(key []byte) *node {
	if n := x.seek(key); n != nil && n.key == string(key) {
		return n
	}
	return nil
}

// add returns the node of key, which it makes if there is none.
func (x *index) add(key []byte) *node {
	n := x.find(key)
	if n == nil {
		n = &node{key: string(key), next: make([]*node, 1+bits.TrailingZeros64(rand.Uint64()|1<<(levels-1)))}
		for l := range n.next {
			n.next[l], x.path[l].next[l] = x.path[l].next[l], n
		}
	}
	return n
}

// forget removes the node of a key that has no value, and is about to get none.
func (x *index) forget(n *node) {
	if n.in == nil && n.pending == 0 && x.find([]byte(n.key)) == n {
		for l := range n.next {
			x.path[l].next[l] = n.next[l]
		}
	}
}
