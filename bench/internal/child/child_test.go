package child

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGCLoadMakesCollectionsAndStops(t *testing.T) {
	g := gcLoad{heap: 20 << 20}
	g.off() // before it was ever on
	g.on()
	g.on()
	var before, m runtime.MemStats
	runtime.ReadMemStats(&before)
	for m.NumGC < before.NumGC+2 { // they come by themselves, or the test times out
		runtime.Gosched()
		runtime.ReadMemStats(&m)
	}
	if m.HeapAlloc < uint64(g.heap)/2 {
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

func TestARoomBeforeTheLimitSparesCollections(t *testing.T) {
	g := gcLoad{heap: 20 << 20, room: 1 << 30}
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer debug.SetGCPercent(percent)
	g.on()
	var before, m runtime.MemStats
	runtime.ReadMemStats(&before)
	for m.TotalAlloc < before.TotalAlloc+gcHeapBytes/5 { // two collections without that room
		runtime.Gosched()
		runtime.ReadMemStats(&m)
	}
	if n := m.NumGC - before.NumGC; n > 0 {
		t.Errorf("%d collections", n)
	}
	g.off()
	if l, p := debug.SetMemoryLimit(-1), debug.SetGCPercent(100); l != limit || p != 100 {
		t.Errorf("limit %d and percent %d stay", l, p)
	}
}
