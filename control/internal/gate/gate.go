// Package gate counts what runs in the background, for the one who waits for its end.
package gate

import (
	"sync"
	"sync/atomic"
)

// Gate counts what runs in the background and, once closed, lets nothing in.
type Gate struct {
	n     atomic.Int64  // that are in; with the bit closed once it is closed
	once  sync.Once     // closes it
	empty chan struct{} // made before it is closed; closed when it is empty then
}

const closed = 1 << 62

// Enter counts the caller in; it returns false once the gate is closed.
func (g *Gate) Enter() bool {
	for {
		n := g.n.Load()
		if n&closed != 0 {
			return false
		}
		if g.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Leave ends an Enter that succeeded.
func (g *Gate) Leave() {
	if g.n.Add(-1) == closed {
		close(g.empty)
	}
}

// Close lets nothing in any more and waits until everything has left.
func (g *Gate) Close() {
	g.once.Do(func() {
		g.empty = make(chan struct{})
		if g.n.Add(closed) == closed {
			close(g.empty)
		}
	})
	<-g.empty
}
