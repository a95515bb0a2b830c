//go:build !race

package sim_test

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// act does one random thing to the world.
func (w *world) act() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.m == nil {
		return
	}
	switch k := w.rng.IntN(100); {
	case k < 60:
		w.traffic(n)
	case k < 76:
		w.disturb(n)
	case k < 80:
		for _, ch := range n.channels {
			ch.conn.Keepalive()
		}
		w.woken = true
	case k < 84:
		w.down(n)
	case k < 87:
		w.death(n)
	case k < 89:
		n.frozen = w.net.Now() + w.span(4*time.Second)
		w.cover.Frozen++
	case k < 91:
		n.skew += w.span(2*time.Hour) - time.Hour
	case k < 93:
		w.limits(n)
	case k < 95:
		n.cancelSends()
	default:
		w.resizeCores(n)
	}
}

// traffic sends a burst of messages: from the outside, from a task on one of
// the sender's cores, or from goroutines that wait for room.
func (w *world) traffic(n *node) {
	to := w.nodes[w.rng.IntN(len(w.nodes))]
	var ch *channel
	if to != n && to.server() && to.m != nil {
		ch = n.channelTo(to)
	} else if len(n.channels) > 0 {
		ch = n.channels[w.rng.IntN(len(n.channels))]
	}
	if ch == nil {
		return
	}
	w.woken = true
	middle, data := w.sizes()
	count := 1 + w.rng.IntN(w.plan.burst)
	switch w.rng.IntN(4) {
	case 0:
		cores := n.cores()
		core := cores[w.rng.IntN(len(cores))]
		err := core.Do(func(*loop.Core) {
			for range count {
				ch.lanes[w.rng.IntN(len(ch.lanes))].send(middle, data, false, false)
			}
		})
		if err != nil {
			w.fail("node %d: task: %v", n.id, err)
		}
	case 1:
		for _, l := range ch.lanes {
			l.send(middle, data, true, false)
		}
	default:
		for range count {
			ch.lanes[w.rng.IntN(len(ch.lanes))].send(middle, data, false, false)
		}
	}
}

// disturb does something to the network of a node.
func (w *world) disturb(n *node) {
	o := w.nodes[w.rng.IntN(len(w.nodes))]
	switch k := w.rng.IntN(10); {
	case k < 3:
		n.host.ResetSome()
	case k < 4:
		n.host.ResetAll()
	case k < 5:
		n.host.EndSome()
	case k < 6 && w.plan.silent:
		n.host.ForgetSome()
		w.cover.Forgotten++
	case k < 8 && o != n:
		// One way, or both.
		w.cover.Cuts++
		w.cut(n, o)
		if w.rng.IntN(2) == 0 {
			w.cut(o, n)
		}
	default:
		w.settleIn(n, control.StateReplacing, control.StateConnecting)
		n.host.ResetSome()
	}
}

func (w *world) cut(a, b *node) {
	w.net.Cut(a.host, b.host)
	w.net.After(w.span(12*time.Second), func() { w.net.Heal(a.host, b.host) })
}

// settleIn lets the world go on until a connection of n is in one of the
// states, for a while, and returns it.
func (w *world) settleIn(n *node, states ...control.State) (found *control.Conn) {
	if w.rng.IntN(2) == 0 {
		states = states[:1]
	}
	if w.rng.IntN(2) == 0 {
		n.host.ResetAll() // what follows brings them about
	}
	w.hunt(func() bool {
		for _, c := range n.m.Conns() {
			for _, s := range states {
				if c.State() == s {
					found = c
					return true
				}
			}
		}
		return false
	})
	return found
}

// down marks a connection down: one of those that the user knows, whatever it
// is doing, or one in the middle of a handshake or of a replacement.
func (w *world) down(n *node) {
	if w.rng.IntN(3) == 0 {
		if c := w.settleIn(n, control.StateReplacing, control.StateConnecting, control.StateEstablishing, control.StateWait); c != nil {
			if c.State() == control.StateReplacing {
				w.cover.DownInReplace++
			}
			n.markDown(c)
		}
		return
	}
	if list := n.m.Conns(); len(list) > 0 {
		n.markDown(list[w.rng.IntN(len(list))])
	}
}

func (n *node) markDown(c *control.Conn) {
	w := n.w
	w.net.Note("node %d marks conn %d down in state %v", n.id, c.ID(), c.State())
	w.cover.Downs++
	w.woken = true
	n.watch(c).down = true
	c.MarkDown()
}

// death ends a process, at a bad moment if one comes.
func (w *world) death(n *node) {
	later := w.span(8 * time.Second)
	if w.rng.IntN(2) == 0 {
		c := w.settleIn(n, control.StateReplacing, control.StateConnecting, control.StateEstablishing)
		if c != nil && c.State() == control.StateReplacing {
			w.cover.DeathInReplace++
		}
	}
	if w.plan.rebinds && n.server() && w.rng.IntN(2) == 0 {
		n.rebind()
		return
	}
	switch w.rng.IntN(3) {
	case 0:
		w.cover.Shutdowns++
		n.end(false, false, later)
	case 1:
		w.cover.Kills++
		n.end(true, false, later)
	default:
		w.cover.Kills++
		n.end(true, w.plan.silent, later)
	}
}

// limits changes the bounds on what a node receives.
func (w *world) limits(n *node) {
	for _, t := range []*loop.Throttle{n.policy.Messages, n.policy.Bytes} {
		if t != nil {
			n.lowered = true
			t.SetLimit(1 + w.rng.Int64N(2*t.Limit()+10))
			w.woken = true
		}
	}
}

// cancelSends gives up those that wait for room.
func (n *node) cancelSends() {
	for _, ch := range n.channels {
		for _, l := range ch.lanes {
			if l.waiting != nil {
				l.waiting.cancel()
				n.w.woken = true
			}
		}
	}
}
