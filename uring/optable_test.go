package uring

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Matrix: IO-08
func TestOpTableForgetsEndedOperations(t *testing.T) {
	var table opTable
	op, _ := table.add(KindReady, MakeSocket(3), 7, nil)
	if op == 0 || table.get(op) == nil || table.get(op).user != 7 {
		t.Fatalf("op %#x is not there", uint64(op))
	}
	table.end(op)
	if table.get(op) != nil {
		t.Error("still there after its end")
	}
	again, _ := table.add(KindSend, MakeSocket(3), 8, nil)
	if uint32(again) != uint32(op) || again == op {
		t.Errorf("slot reused as %#x after %#x: want the slot, not the name", uint64(again), uint64(op))
	}
	if table.get(op) != nil {
		t.Error("the old name finds the new operation")
	}
	for _, wrong := range []Op{0, 1, again + 1, again + 1<<32, math.MaxUint64} {
		if table.get(wrong) != nil {
			t.Errorf("%#x names something", uint64(wrong))
		}
	}
}

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
