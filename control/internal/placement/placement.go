// Package placement chooses the core for a piece of work: for a connection that
// we make, for one that leaves its core, for a listener that does. There is one
// rule for all of them, [Choose], over facts; the rest brings the facts.
package placement

import (
	"slices"
	"sync"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Fitness orders cores by whether they can be given work.
type Fitness uint8

// The degrees of fitness.
const (
	Gone    Fitness = iota // failed, or being removed
	Stalled                // it stands still
	Healthy
)

// FitnessOf is the fitness of a core now.
func FitnessOf(c *loop.Core) Fitness {
	switch {
	case c.Healthy():
		return Healthy
	case c.State() == loop.CoreRunning:
		return Stalled
	}
	return Gone
}

// Fact is what Choose knows of a core.
type Fact struct {
	Fit  Fitness
	Load int // the unit is the caller's: connections, listeners
}

// Choose is the index of the fittest core, of those the least loaded, of those
// the first one from index from on, going round; -1 if there is none.
func Choose(cores []Fact, from int) int {
	best := -1
	for i := range cores {
		at := (from + i) % len(cores)
		c := cores[at]
		if best < 0 || c.Fit > cores[best].Fit || c.Fit == cores[best].Fit && c.Load < cores[best].Load {
			best = at
		}
	}
	return best
}

// Running are the cores of a list that can be given work.
func Running(all []*loop.Core) []*loop.Core {
	down := func(c *loop.Core) bool { return c.State() != loop.CoreRunning }
	if !slices.ContainsFunc(all, down) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), down)
}

// Turns chooses cores for connections, in turn where several are as good. The
// zero value is ready. Any goroutine may use it.
type Turns struct {
	mu       sync.Mutex
	next     int                // guarded by mu
	expected map[*loop.Core]int // guarded by mu; see Expect
}

// Expect counts n more connections that are about to be sent to a core, or, below
// 0, that are on their way now, and counted by the core itself.
func (t *Turns) Expect(to *loop.Core, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.expected == nil {
		t.expected = make(map[*loop.Core]int)
	}
	if t.expected[to] += n; t.expected[to] == 0 {
		delete(t.expected, to)
	}
}

// Pick is the core for one more connection: with the fewest connections, those
// that are on their way to it counted in. One that has failed or is being
// removed is the answer only if there is no other. all must not be empty.
func (t *Turns) Pick(all []*loop.Core) *loop.Core {
	facts := make([]Fact, len(all))
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range all {
		facts[i] = Fact{FitnessOf(c), c.Load() + t.expected[c]}
	}
	i := Choose(facts, t.next)
	t.next = (i + 1) % len(all)
	return all[i]
}
