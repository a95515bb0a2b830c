//go:build !race

package sim_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

var errBreak = errors.New("fault at a break point")

// breaks is the probe of one life of a node: it counts what the session
// handshakes say, and faults or stalls at random break points.
type breaks struct {
	w     *world
	every int

	mu  sync.Mutex
	rng *rand.Rand
}

// strike says whether this break point disturbs, and for how long it stalls.
func (b *breaks) strike() (strikes bool, stall time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.every == 0 || b.w.quiet || b.rng.IntN(b.every) != 0 {
		return false, 0
	}
	if b.rng.IntN(3) == 0 {
		stall = time.Duration(b.rng.IntN(12_000)) * time.Millisecond
	}
	return true, stall
}

// At implements probe.Probe.
func (b *breaks) At(ctx context.Context, e probe.Event) error {
	switch {
	case e.Step == probe.SocketDecided:
		return nil // there is nothing to break
	case e.When == probe.Data:
		return b.frame()
	case e.When == probe.After && e.Step == probe.FrameWrite:
		b.w.cover.wrote(e.Tag)
	}
	strikes, stall := b.strike()
	if !strikes {
		return nil
	}
	b.w.cover.struck()
	if stall == 0 {
		return errBreak
	}
	over := make(chan struct{})
	stop := simClock{b.w.nodes[0]}.AfterFunc(stall, func() { close(over) })
	defer stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// frame breaks the data phase, where frames are many, less often.
func (b *breaks) frame() error {
	if strikes, _ := b.strike(); strikes {
		b.w.cover.struck()
		return errBreak
	}
	return nil
}
