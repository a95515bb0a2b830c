//go:build !invariants && !race

package control_test

import "testing"

func TestStartedCallsDoNotAllocate(t *testing.T) {
	p := newCaller(t, true, 8)
	const requests = 2000
	p.run(requests)
	if n := testing.AllocsPerRun(5, func() { p.run(requests) }); n > requests/20 { // lists that still grow, now and then
		t.Errorf("%v allocations in %d requests", n, requests)
	}
}
