//go:build !race

package control_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

var errBreak = errors.New("fault at a break point")

// breaks is the interceptor of one life of a node: it counts what the session
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

func (b *breaks) Step(ctx context.Context, _ *control.Conn, _ uint64, p handshake.Point, after bool) error {
	if p.Step == handshake.FrameWrite && after {
		b.w.cover.wrote(p.Tag)
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

// Frame breaks the data phase, where frames are many, less often.
func (b *breaks) Frame(_ *control.Conn, _ frame.Tag, _ bool) error {
	if strikes, _ := b.strike(); strikes {
		b.w.cover.struck()
		return errBreak
	}
	return nil
}
