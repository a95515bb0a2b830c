//go:build !race

package sim_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// Half of the seeds, the even ones, have nodes whose cores come and go.

// simCores is the largest number of cores that a node grows to.
const simCores = 5

// simPatience bounds the removal of a core, where it is bounded.
const simPatience = 300 * time.Millisecond

// resize is one change of a node's cores.
type resize struct {
	life int
	add  bool
	err  error
	// cancelled: patience may have ended before the core was empty.
	cancelled bool
	cancel    context.CancelFunc
}

// plane has the cores of one life of a node: the world turns them.
type plane struct {
	mu   sync.Mutex     // a goroutine adds a core while the world turns the others
	list []*simnet.Core // by number
}

// opened takes a core that the messenger has started.
func (p *plane) opened(c *simnet.Core) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, _ := slices.BinarySearchFunc(p.list, c.ID(), func(o *simnet.Core, id int) int { return o.ID() - id })
	p.list = slices.Insert(slices.Clone(p.list), at, c)
}

// all are the cores that have not been removed, by number.
func (p *plane) all() []*simnet.Core {
	p.mu.Lock()
	defer p.mu.Unlock()
	stopped := func(c *simnet.Core) bool { return c.State() == loop.CoreStopped }
	if slices.ContainsFunc(p.list, stopped) {
		p.list = slices.DeleteFunc(slices.Clone(p.list), stopped)
	}
	return p.list
}

// cores are those that can be given work.
func (n *node) cores() (list []*simnet.Core) {
	for _, c := range n.plane.all() {
		if c.State() == loop.CoreRunning {
			list = append(list, c)
		}
	}
	return list
}

// resizeCores adds a core to a node, or removes one, while everything goes on.
func (w *world) resizeCores(n *node) {
	if !w.plan.resizes || n.resizing != nil || n.ending {
		return
	}
	cores := n.cores()
	r := &resize{life: n.life, add: len(cores) == 1 || len(cores) < simCores && w.rng.IntN(2) == 0}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	n.resizing, w.woken = r, true
	m := n.m
	if r.add {
		w.net.Note("node %d adds a core", n.id)
		w.cover.Added++
		go func() { _, err := m.AddCore(ctx); n.resized(r, err) }()
		return
	}
	core := cores[w.rng.IntN(len(cores))].ID()
	w.net.Note("node %d removes core %d", n.id, core)
	w.cover.Removed++
	if w.rng.IntN(3) == 0 {
		w.net.After(w.span(simPatience), func() {
			if n.resizing == r {
				r.cancelled, w.woken = true, true
				cancel()
			}
		})
	}
	go func() { n.resized(r, m.RemoveCore(ctx, core)) }()
}

// resized is the end of it, on a goroutine.
func (n *node) resized(r *resize, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.err = err
	n.changed = append(n.changed, r)
}

// collectResizes looks at what has ended.
func (n *node) collectResizes() {
	n.mu.Lock()
	changed := n.changed
	n.changed = nil
	n.mu.Unlock()
	for _, r := range changed {
		w := n.w
		r.cancel()
		if n.resizing == r {
			n.resizing = nil
		}
		over := r.life != n.life || n.ending // a process that dies loses its listeners first
		switch {
		case r.err == nil, over, r.cancelled && errors.Is(r.err, context.Canceled):
		default:
			w.fail("node %d: cores changed (add %v): %v", n.id, r.add, r.err)
		}
		w.net.Note("node %d: cores changed: %v", n.id, r.err)
	}
}

// countMoved is a connection that came with its socket.
func (w *world) countMoved(c *control.Conn) {
	w.cover.Migrated++
	if c.State() == control.StateReady {
		w.cover.MovedLive++
	}
}
