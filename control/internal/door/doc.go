// Package door decides which accepted connections may be half open, that is, in a
// handshake with a peer that is not known yet.
//
// Their number is bounded. While at most half of the bound is in use, the door lets every
// connection in. Above that each source address and each prefix of addresses has a share,
// so that one peer cannot take the places of the others. A newcomer that finds no room
// takes the place of the connection that has been silent for longest, of its own share if
// its share is full. A connection is silent until the first step of its handshake, and for
// a while (grace) that is no reason to evict it. A connection that has made progress is
// evicted only if it has stood still for a while and no connection is silent; else the
// newcomer waits for a place (room.go), and is refused if many wait.
//
// The number of connections of a source or prefix that come to nothing is bounded, too
// (Rate): above the bound its newcomers wait for their turn (line.go), and newcomers of
// other sources do not. A connection that waits, or that is evicted while its peer waits
// for us, is not counted.
//
// An evicted connection holds its memory until its goroutine has ended. Evicted and
// waiting connections together may be as many as the bound, and those of one source as many
// as its share: above that newcomers are refused. So memory is bounded by twice the number
// of places.
//
// A handshake asks the door at each step. Its reports, of the bytes that it keeps and of its
// progress, take no lock (door.go, room.go).
package door
