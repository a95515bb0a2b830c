package faulty

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

// Strike lets the nth request of a kind fail, counted from 1 over all drivers that
// ask it. Any goroutine may use it.
type Strike struct {
	At    Request
	Fault Fault
	Nth   int64

	asked  atomic.Int64
	struck atomic.Bool
}

// Ask is the function that a Driver asks.
func (s *Strike) Ask(r Request) Fault {
	if r != s.At || s.asked.Add(1) != s.Nth {
		return Fault{}
	}
	s.struck.Store(true)
	return s.Fault
}

// Struck says whether the request has failed.
func (s *Strike) Struck() bool { return s.struck.Load() }

// Random lets requests fail at random, by any cell of the table. Any goroutine may
// use it; if one goroutine at a time does, the same source gives the same faults.
type Random struct {
	mu    sync.Mutex
	rng   *rand.Rand
	every map[Request]int
	cells map[Request][]Fault
	count map[Request]int
}

// NewRandom makes a Random with a source of its own. every says for each request how
// many of them there are for each that fails.
func NewRandom(rng *rand.Rand, every map[Request]int) *Random {
	n := &Random{rng: rng, every: every, cells: make(map[Request][]Fault), count: make(map[Request]int)}
	for _, c := range Table() {
		n.cells[c.Request] = append(n.cells[c.Request], c.Fault)
	}
	return n
}

// Ask is the function that a Driver asks.
func (n *Random) Ask(r Request) Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	every := n.every[r]
	if every == 0 || n.rng.IntN(every) != 0 {
		return Fault{}
	}
	n.count[r]++
	return n.cells[r][n.rng.IntN(len(n.cells[r]))]
}

// Count is how many requests of a kind have failed.
func (n *Random) Count(r Request) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[r]
}

// Stop lets no further request fail.
func (n *Random) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.every = nil
}

// Requests are those of the table, each once.
func Requests() []Request {
	var out []Request
	for _, r := range rows {
		if !slices.Contains(out, r.request) {
			out = append(out, r.request)
		}
	}
	return out
}
