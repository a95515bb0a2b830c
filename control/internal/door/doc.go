// Package door decides which accepted connections may be half open: those
// whose handshake is under way, of peers that nobody knows yet.
//
// Their number is bounded. While no more than half of the bound is in use
// everybody is let in. Above that each source address and each prefix of
// addresses has a share, so that one peer cannot take the places of the others.
// A newcomer that finds no room takes the place of the connection that has been
// silent for longest, within its own share if that is what is full. A
// connection is silent until the first step of its handshake, and for a while (grace)
// that is no reason to evict it. One that has made progress is evicted only if it has made
// none for a while and no connection is silent; else the newcomer waits for a place
// (room.go), and is refused where many wait.
//
// How many connections of a source or prefix come to nothing is bounded, too (Rate):
// above that its newcomers wait for their turn (line.go), while those of others do not. A
// connection that waits, or that is evicted while its peer waits for us, comes to nothing by
// no fault of its own and is not counted.
//
// An evicted connection holds its memory until its goroutine has ended. As many
// as the bound may be in that state, with those who wait, and of one source as many as its share:
// above that newcomers are refused. Memory is bounded by twice the number of
// places.
//
// A handshake asks the door at each step. What it says of its own, how much it keeps and
// that it has got on, takes no lock (report.go, memory.go).
package door
