package dataplane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// receive has items arrive and returns them in the order of their turns.
func receive(q *Ordered[uint64], numbers ...uint64) (turns []uint64) {
	for _, n := range numbers {
		if !q.Arrive(n, 10*n) {
			continue
		}
		turns = append(turns, 10*n)
		for item, ok := q.Next(); ok; item, ok = q.Next() {
			turns = append(turns, item)
		}
	}
	return turns
}

func TestEveryOrderOfArrivalIsMended(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		n := 1 + rng.IntN(20)
		var numbers, want []uint64
		for i := range n {
			numbers = append(numbers, uint64(i+1))
			want = append(want, uint64(i+1)*10)
		}
		rng.Shuffle(n, func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
		var q Ordered[uint64]
		if got := receive(&q, numbers...); !slices.Equal(got, want) || q.waiting() != 0 {
			t.Fatal(fmt.Sprint(numbers, got))
		}
	}
}

func TestANumberCanPassWithoutAnItem(t *testing.T) {
	var q Ordered[uint64]
	receive(&q, 1, 3)
	q.pass(2)
	if item, ok := q.Next(); !ok || item != 30 {
		t.Errorf("%d, %v", item, ok)
	}
}

func TestItemsInOrderCostNoMemory(t *testing.T) {
	var q Ordered[*int]
	n := uint64(0)
	if got := testing.AllocsPerRun(100, func() {
		n++
		if !q.Arrive(n, nil) {
			t.Error("not its turn")
		}
		q.Next()
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
