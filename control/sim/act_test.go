//go:build !race

package sim_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// act does one random thing to the world.
func (w *world) act() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.m == nil {
		return
	}
	if w.plan.pauses && w.more.IntN(4) == 0 {
		w.pause(n)
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
	send := func(l *lane, wait bool) {
		if w.plan.calls && w.more.IntN(2) == 0 {
			l.call(middle, data, wait)
			return
		}
		l.send(middle, data, wait, simMessage)
	}
	switch w.rng.IntN(4) {
	case 0:
		cores := n.cores()
		core := cores[w.rng.IntN(len(cores))]
		err := core.Do(func(*loop.Core) {
			for range count {
				send(ch.lanes[w.rng.IntN(len(ch.lanes))], false)
			}
		})
		if err != nil {
			w.fail("node %d: task: %v", n.id, err)
		}
	case 1:
		for _, l := range ch.lanes {
			send(l, true)
		}
	default:
		for range count {
			send(ch.lanes[w.rng.IntN(len(ch.lanes))], false)
		}
	}
}

// pause has a user stop a connection for a while.
func (w *world) pause(n *node) {
	list := n.m.Conns()
	if len(list) == 0 {
		return
	}
	c := list[w.more.IntN(len(list))]
	w.net.Note("node %d pauses conn %d in state %v", n.id, c.ID(), c.State())
	w.cover.Pauses++
	v := n.watch(c)
	v.paused, v.came, w.woken = true, 0, true
	c.Pause()
	w.net.After(time.Duration(w.more.Int64N(int64(8*time.Second))), func() { v.paused = false; n.resume(c) })
}

// resume ends a pause, or a hold at a break point, unless the user has stopped the connection.
func (n *node) resume(c *control.Conn) {
	if !n.watch(c).paused {
		n.w.woken = true
		c.Resume()
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

// down marks a connection down: a connection that the user knows, in any state, or one in the
// middle of a handshake or of a replacement.
func (w *world) down(n *node) {
	if list := n.m.Conns(); w.plan.drains && len(list) > 0 && w.rng.IntN(3) > 0 {
		n.drain(list[w.rng.IntN(len(list))])
		return
	}
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

// drain ends a connection in good order, or not, while everything goes on: without an error everything
// has arrived that Send took. One in eleven seeds has some.
func (n *node) drain(c *control.Conn) {
	w, v := n.w, n.watch(c)
	if v.drains || v.down {
		return
	}
	w.net.Note("node %d drains conn %d in state %v", n.id, c.ID(), c.State())
	w.cover.Drains++
	v.drains = true
	ctx, cancel := context.WithCancel(context.Background())
	n.draining = append(n.draining, cancel)
	w.net.After(w.span(20*time.Second), func() { cancel(); w.woken = true })
	process := n.process
	var err error
	w.apart(func() { err = c.Drain(ctx) }, func() {
		cancel()
		if process != n.process || n.ending {
			return
		}
		w.net.Note("node %d conn %d: drained: %v", n.id, c.ID(), err)
		switch {
		case err == nil:
			w.cover.Drained++
			n.checkDrained(c)
		case !errors.Is(err, control.ErrUndelivered) && !errors.Is(err, control.ErrClosed) && !errors.Is(err, context.Canceled):
			w.fail("node %d conn %d: drain: %v", n.id, c.ID(), err)
		}
		v.down = true
	})
	w.still() // from here on there is no reset event
}

// endDrains gives up those under way: a peer comes back by another connection then.
func (w *world) endDrains() {
	if !w.plan.drains {
		return
	}
	for _, n := range w.nodes {
		for _, cancel := range n.draining {
			cancel()
			w.woken = true
		}
		n.draining = nil
	}
	w.run(time.Second)
}

// checkDrained fails for a message that a drained connection has not delivered.
func (n *node) checkDrained(c *control.Conn) {
	for _, ch := range n.channels {
		if ch.conn != c || !n.w.plan.kind.lossless {
			continue
		}
		for _, l := range ch.lanes {
			if number := l.missing(); number != 0 {
				n.w.fail("node %d conn %d: drained without an error, and message %d of %d of stream %d has not arrived", n.id, c.ID(), number, l.next, l.stream)
			}
		}
	}
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

// limits changes the bounds of the messages that a node receives.
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

// rebind gives a server another address while everything goes on. For its peers
// that is a death and a birth; its own connections are as if marked down, and
// the messages that it held for them are released.
func (n *node) rebind() {
	w := n.w
	w.net.Note("rebind node %d", n.id)
	w.cover.Rebinds++
	w.woken = true
	var addrs wire.AddrVec
	var err error
	n.rebinding = true
	w.wait("rebind", func() {
		before := n.m.Conns()
		if addrs, err = n.m.Rebind(context.Background()); err != nil {
			return
		}
		for _, c := range before {
			<-c.Closed()
		}
	})
	n.rebinding = false
	if err != nil {
		w.fail("node %d: %v", n.id, err)
		return
	}
	if addrs[0].AddrPort.Port() == n.addr.AddrPort.Port() || addrs[0].Nonce == n.addr.Nonce {
		w.fail("node %d: rebound from %v to %v", n.id, n.addr, addrs[0])
	}
	for c, v := range n.conns {
		if !v.down && c.State() == control.StateClosing && v.resets == 0 {
			v.down = true
			w.cover.RebindsDown++
		}
	}
	n.addr, n.addrs = addrs[0], addrs
	n.life++
}

var errBreak = errors.New("fault at a break point")

// breaks is the probe of one life of a node: it counts the frames of session handshakes, and
// faults or stalls at random break points.
type breaks struct {
	w     *world
	n     *node
	every int

	mu       sync.Mutex
	rng, how *rand.Rand
}

// strike is for how long this break point stalls, and its fault, nil: it does not disturb.
func (b *breaks) strike() (stall time.Duration, fault error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.every == 0 || b.w.quiet || b.rng.IntN(b.every) != 0 {
		return 0, nil
	}
	if b.rng.IntN(3) == 0 {
		stall = time.Duration(b.rng.IntN(12_000)) * time.Millisecond
	}
	if !b.w.plan.stops {
		return stall, errBreak
	}
	return stall, []error{errBreak, probe.ErrReset, probe.ErrHalfClose}[b.how.IntN(3)]
}

// At implements probe.Probe.
func (b *breaks) At(ctx context.Context, e probe.Event) error {
	switch {
	case e.Step == probe.SocketDecided:
		return nil // there is nothing to break
	case e.When == probe.Data:
		stall, fault := b.strike()
		if fault == nil {
			return nil
		}
		b.w.cover.struck()
		if c, ok := e.Conn.(*control.Conn); ok && stall > 0 && b.w.plan.stops {
			b.w.net.After(stall, func() { b.n.resume(c) })
			return probe.ErrHold
		}
		return fault
	case e.When == probe.After && e.Step == probe.FrameWrite:
		b.w.cover.wrote(e.Tag)
	}
	stall, fault := b.strike()
	if fault == nil {
		return nil
	}
	b.w.cover.struck()
	if stall == 0 {
		return fault
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

// Two of five seeds have drivers that fail, in every way that the kernel has (package faulty) and that a
// core lives with. What fails comes from a source of its own, so that it changes nothing else about a seed.

// newSimFaults are the faults of a seed, nil if it has none. No driver breaks as a whole: cores
// without threads do not fail.
func newSimFaults(seed uint64) *faulty.Random {
	if seed%5 > 1 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0x6661756c7473))
	every := make(map[faulty.Request]int)
	for request, most := range map[faulty.Request]int{
		faulty.Adopt: 8, faulty.Accept: 4, faulty.AcceptEnd: 8, faulty.Connect: 8, faulty.ConnectEnd: 8, faulty.Detach: 4,
		faulty.Ready: 16, faulty.ReadyEnd: 400, faulty.Read: 400, faulty.Send: 400, faulty.SendEnd: 200,
	} {
		every[request] = most
	}
	scale := 1 << rng.IntN(4)
	for _, request := range faulty.Requests() { // in a fixed order
		if every[request] > 0 {
			if every[request] *= scale; rng.IntN(4) == 0 {
				every[request] = 0
			}
		}
	}
	every[faulty.Receive], every[faulty.ReceiveEnd] = 64*scale, 400*scale // drawn last, so that the course of all others stays
	return faulty.NewRandom(rng, every)
}

// breakDrivers has the drivers of a node fail, if those of the world do.
func (n *node) breakDrivers(cfg *loop.Config) {
	n.broken = nil
	if n.w.faults == nil {
		return
	}
	n.broken = make(map[int]faulty.Driver)
	open := cfg.Open
	cfg.Open = func(core int) (uring.Driver, error) {
		below, err := open(core)
		if err != nil {
			return nil, err
		}
		d := faulty.New(below, n.w.faults.Ask)
		n.broken[core] = d
		return d, nil
	}
}

// holds says that the driver of a core holds something back.
func (n *node) holds(core int) bool {
	d := n.broken[core]
	return d != nil && d.Pending()
}

// endFaults lets nothing fail any more.
func (w *world) endFaults() {
	if w.faults == nil {
		return
	}
	w.faults.Stop()
	for _, r := range faulty.Requests() {
		w.cover.DriverFaults += w.faults.Count(r)
	}
}
