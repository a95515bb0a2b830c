package child

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	gcHeapBytes  = 200 << 20              // live, full of pointers
	gcNodeBytes  = 64                     // per node
	gcAllocators = 2                      // goroutines
	gcPeriod     = time.Millisecond       // of each of them
	gcPerPeriod  = 64 << 10 / gcNodeBytes // nodes allocated each time
	gcPercent    = 10                     // so that even a short slice sees a collection
)

// gcNode is a piece of a heap that the collector has to follow pointer by pointer.
type gcNode struct {
	next, other *gcNode
	_           [gcNodeBytes - 16]byte
}

// gcLoad keeps the collector busy: goroutines that allocate steadily, 64 KiB
// each millisecond each, in a heap of 200 MB of pointers that is collected
// several times a second. It belongs to one goroutine.
type gcLoad struct {
	lists [gcAllocators]*gcNode // rings of nodes, replaced one after the other
	heap  int                   // bytes of them; 0: gcHeapBytes
	stop  chan struct{}
	wait  sync.WaitGroup
	room  int64 // bytes that are allocated between two collections; 0: a tenth of the heap

	percent int   // the settings to go back to
	limit   int64 // bytes
}

// on starts the load; the heap is built the first time.
func (g *gcLoad) on() {
	if g.stop != nil {
		return
	}
	if g.lists[0] == nil {
		for i := range g.lists {
			g.lists[i] = newRing(cmp.Or(g.heap, gcHeapBytes) / gcNodeBytes / gcAllocators)
		}
		runtime.GC()
	}
	if g.room > 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		g.percent = debug.SetGCPercent(-1)
		g.limit = debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + g.room)
	} else {
		g.percent = debug.SetGCPercent(gcPercent)
		g.limit = debug.SetMemoryLimit(-1) // it stays
	}
	g.stop = make(chan struct{})
	for i := range g.lists {
		g.wait.Go(func() { g.lists[i] = churn(g.lists[i], g.stop) })
	}
}

// off ends the load and returns when it has ended. The heap stays.
func (g *gcLoad) off() {
	if g.stop == nil {
		return
	}
	close(g.stop)
	g.wait.Wait()
	g.stop = nil
	debug.SetGCPercent(g.percent)
	debug.SetMemoryLimit(g.limit)
	runtime.GC() // ends the collection that may be under way: the next slice is another server's
}

// newRing returns a ring of n nodes.
func newRing(n int) *gcNode {
	first := &gcNode{}
	last := first
	for range n - 1 {
		last.next = &gcNode{other: last}
		last = last.next
	}
	last.next = first
	return first
}

// churn replaces nodes of a ring until stop closes and returns the place it got to.
func churn(at *gcNode, stop <-chan struct{}) *gcNode {
	tick := time.NewTicker(gcPeriod)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return at
		case <-tick.C:
		}
		for range gcPerPeriod {
			old := at.next
			at.next = &gcNode{next: old.next, other: at}
			old.next, old.other = nil, nil
			at = at.next
		}
	}
}
