package control

import (
	"sync"
	"sync/atomic"
)

// waitGroup counts what runs in the background and, once closed, lets nothing in.
type waitGroup struct {
	n     atomic.Int64  // that are in; with closedGroup once it is closed
	once  sync.Once     // closes it
	empty chan struct{} // made before it is closed; closed when it is empty then
}

const closedGroup = 1 << 62

// enter counts the caller in; it returns false once the gate is closed.
func (g *waitGroup) enter() bool {
	for {
		n := g.n.Load()
		if n&closedGroup != 0 {
			return false
		}
		if g.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (g *waitGroup) leave() {
	if g.n.Add(-1) == closedGroup {
		close(g.empty)
	}
}

// close lets nothing in any more and waits until everything has left.
func (g *waitGroup) close() {
	g.once.Do(func() {
		g.empty = make(chan struct{})
		if g.n.Add(closedGroup) == closedGroup {
			close(g.empty)
		}
	})
	<-g.empty
}
