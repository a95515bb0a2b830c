package child

import (
	"runtime"
	"testing"
)

func TestGCLoadMakesCollectionsAndStops(t *testing.T) {
	var g gcLoad
	g.off() // before it was ever on
	g.on()
	g.on()
	var before, m runtime.MemStats
	runtime.ReadMemStats(&before)
	for m.NumGC < before.NumGC+2 { // they come by themselves, or the test times out
		runtime.Gosched()
		runtime.ReadMemStats(&m)
	}
	if m.HeapAlloc < gcHeapBytes/2 {
		t.Errorf("the heap has %d bytes", m.HeapAlloc)
	}
	g.off()
	runtime.ReadMemStats(&before)
	runtime.GC()
	runtime.ReadMemStats(&m)
	if grown := m.Mallocs - before.Mallocs; grown > gcPerPeriod {
		t.Errorf("%d allocations after the end", grown)
	}
	g.on() // again, with the same heap
	g.off()
	runtime.KeepAlive(&g)
}

func TestARingKeepsItsLength(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	at := churn(newRing(10), stop)
	n := 1
	for p := at.next; p != at; p = p.next {
		n++
	}
	if n != 10 {
		t.Errorf("%d nodes", n)
	}
}
