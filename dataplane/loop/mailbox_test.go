package loop

import (
	"sync"
	"testing"
	"time"
)

// Matrix: XC-08, IO-10
func TestMailboxKeepsTheOrderOfEachProducer(t *testing.T) {
	const producers, each = 8, 2000
	var box mailbox
	type entry struct{ producer, n int }
	var got []entry
	var running sync.WaitGroup
	for p := range producers {
		running.Go(func() {
			for n := range each {
				box.push(&Task{Run: func(*Core) { got = append(got, entry{p, n}) }})
			}
		})
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		for tk := box.take(); tk != nil; tk = tk.next {
			tk.Run(nil)
		}
	}
	if !box.empty() || len(got) != producers*each {
		t.Fatalf("%d tasks came out of %d", len(got), producers*each)
	}
	next := make([]int, producers)
	for i, e := range got {
		if e.n != next[e.producer] {
			t.Fatalf("task %d: producer %d's number %d, want %d", i, e.producer, e.n, next[e.producer])
		}
		next[e.producer]++
	}
}

// Matrix: XC-09, IO-11
func TestAWakeUpIsNeverLost(t *testing.T) {
	overPlanes(t, 2, func(t *testing.T, p *Plane) {
		const rounds = 2000 // to each of two cores
		ran := make(chan struct{}, 1)
		timeout := time.NewTimer(patience)
		for i := range rounds {
			for c := range 2 {
				must(t, p.Core(c).Do(func(*Core) { ran <- struct{}{} }))
				select {
				case <-ran:
				case <-timeout.C:
					t.Fatalf("round %d: core %d sleeps over a task", i, c)
				}
			}
		}
	})
}
