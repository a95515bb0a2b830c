package uring

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Matrix: IO-22
func TestOpTableGenerationWrapsPastTheZeroOp(t *testing.T) {
	var table opTable
	op, _ := table.add(KindReady, MakeSocket(0), 0, nil)
	table.end(op)
	table.slots[0].gen = math.MaxUint32
	last, _ := table.add(KindReady, MakeSocket(0), 0, nil)
	table.end(last)
	next, _ := table.add(KindReady, MakeSocket(0), 0, nil)
	if next == 0 || table.get(next) == nil || table.get(0) != nil || table.get(last) != nil {
		t.Errorf("after %#x came %#x", uint64(last), uint64(next))
	}
}

// The chains against a plain map, under random adds and ends.
func TestOpTableChainsTheOperationsOfEachDescriptor(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var table opTable
	want := map[Op]int{}
	for range 5000 {
		if fd := rnd.IntN(5); rnd.IntN(2) == 0 || len(want) == 0 {
			op, _ := table.add(KindReady, MakeSocket(fd), 0, nil)
			want[op] = fd
		} else {
			for op := range want {
				table.end(op)
				delete(want, op)
				break
			}
		}
		seen := 0
		for fd := range 5 {
			for op := table.first(fd); op != 0; op = table.after(op) {
				if want[op] != fd || table.get(op) == nil {
					t.Fatalf("%#x is in the chain of %d", uint64(op), fd)
				}
				seen++
			}
		}
		live := 0
		for op, i := table.live(0); op != 0; op, i = table.live(i) {
			live++
		}
		if seen != len(want) || live != len(want) || table.inFlight != len(want) {
			t.Fatalf("%d chained, %d live, %d counted, want %d", seen, live, table.inFlight, len(want))
		}
	}
	if table.first(99) != 0 || table.first(-1) != 0 {
		t.Error("a chain of a descriptor never used")
	}
}
