package sessions

import (
	"sync"
	"sync/atomic"
)

// WaitGroup counts what runs in the background and, once closed, lets nothing in.
type WaitGroup struct {
	n     atomic.Int64  // that are in; with closedGroup once it is closed
	once  sync.Once     // closes it
	empty chan struct{} // made before it is closed; closed when it is empty then
}

const closedGroup = 1 << 62

// Enter counts the caller in; it returns false once the gate is closed.
func (g *WaitGroup) Enter() bool {
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

// Leave ends an Enter that succeeded.
func (g *WaitGroup) Leave() {
	if g.n.Add(-1) == closedGroup {
		close(g.empty)
	}
}

// Close lets nothing in any more and waits until everything has left.
func (g *WaitGroup) Close() {
	g.once.Do(func() {
		g.empty = make(chan struct{})
		if g.n.Add(closedGroup) == closedGroup {
			close(g.empty)
		}
	})
	<-g.empty
}

// signal is sent once. Its channel is made when somebody first asks for it: most
// connections end without. Any goroutine.
type signal struct{ ch atomic.Pointer[chan struct{}] }

// sent returns a channel that closes when the signal is sent.
func (s *signal) sent() <-chan struct{} { return *s.channel() }

// send sends the signal. It may be called once.
func (s *signal) send() { close(*s.channel()) }

func (s *signal) channel() *chan struct{} {
	if ch := s.ch.Load(); ch != nil {
		return ch
	}
	made := make(chan struct{})
	s.ch.CompareAndSwap(nil, &made) // or another one was faster
	return s.ch.Load()
}
