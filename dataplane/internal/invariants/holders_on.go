//go:build invariants

package invariants

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Holding says that this build knows who holds memory that it has lent.
const Holding = true

// The sizes of a report.
const (
	maxFrames = 24 // of a stack that are told apart
	maxShown  = 6  // of these in a report
	maxStacks = 3  // in a report
)

type stack [maxFrames]uintptr

// Holders are the stacks of those who hold something. The zero value is ready. Any
// goroutine may call its methods.
type Holders struct {
	mu sync.Mutex
	of map[any]holding // guarded by mu
}

type holding struct {
	by    stack
	bytes int
}

// held is what the holders with one stack have.
type held struct {
	by    stack
	n     int
	bytes int
}

// Hold says that the caller of the caller holds what, in place of who held it before.
func (h *Holders) Hold(what any, bytes int) {
	one := holding{bytes: bytes}
	runtime.Callers(3, one.by[:])
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = make(map[any]holding)
	}
	h.of[what] = one
}

// Drop says that nobody holds what.
func (h *Holders) Drop(what any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, what)
}

// Report is a line for each stack: of those who hold the most bytes, the inner call first.
func (h *Holders) Report() string {
	sums := make(map[stack]held)
	h.mu.Lock()
	for _, one := range h.of {
		sum := sums[one.by]
		sums[one.by] = held{one.by, sum.n + 1, sum.bytes + one.bytes}
	}
	h.mu.Unlock()
	list := slices.SortedFunc(maps.Values(sums), func(a, b held) int { return cmp.Compare(b.bytes, a.bytes) })
	var lines []string
	for _, one := range list[:min(len(list), maxStacks)] {
		lines = append(lines, fmt.Sprintf("%d with %d bytes: %s", one.n, one.bytes, one.by.text()))
	}
	if more := len(list) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("%d more stacks hold less", more))
	}
	return strings.Join(lines, "\n")
}

func (s stack) text() string {
	var calls []string
	pcs := s[:]
	if n := slices.Index(pcs, 0); n >= 0 {
		pcs = pcs[:n]
	}
	frames := runtime.CallersFrames(pcs)
	for range maxShown {
		f, more := frames.Next()
		calls = append(calls, fmt.Sprintf("%s (%s:%d)", filepath.Base(f.Function), filepath.Base(f.File), f.Line))
		if !more {
			break
		}
	}
	return strings.Join(calls, " < ")
}
