package control

import "sync"

// waitGroup counts what runs in the background and, once closed, lets nothing in.
type waitGroup struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // closed when closed and n == 0
}

// enter counts the caller in; it returns false once the gate is closed.
func (g *waitGroup) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *waitGroup) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.closed {
		close(g.empty)
	}
}

// close lets nothing in any more and waits until everything has left.
func (g *waitGroup) close() {
	g.mu.Lock()
	if !g.closed {
		g.closed, g.empty = true, make(chan struct{})
		if g.n == 0 {
			close(g.empty)
		}
	}
	empty := g.empty
	g.mu.Unlock()
	<-empty
}
