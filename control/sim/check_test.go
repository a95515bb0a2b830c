//go:build !race

package sim_test

import (
	"iter"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// doubt is a lossless message that was released before it arrived. The event
// of a reset has to explain it soon.
type doubt struct {
	lane   *lane
	number uint64
	since  time.Duration
}

// checkDoubts fails for those that nothing explains. all: there was time
// enough for every one of them.
func (w *world) checkDoubts(all bool) {
	kept := w.doubts[:0]
	for _, d := range w.doubts {
		ch := d.lane.ch
		if d.lane.lost >= d.number || d.lane.excused(d.number) || ch.over() || ch.w.life != ch.from.life || ch.from.ending || ch.toLife != ch.to.life {
			continue
		}
		if ch.from.frozen > d.since {
			d.since = ch.from.frozen
		}
		if all || w.net.Now() > d.since+2*time.Second {
			w.fail("node %d: message %d of stream %d to node %d was released before it arrived", ch.from.id, d.number, d.lane.stream, ch.to.id)
			continue
		}
		kept = append(kept, d)
	}
	w.doubts = kept
}

// settled says whether everything has arrived that must.
func (w *world) settled() bool {
	for _, n := range w.nodes {
		if w.foe.atWork() {
			break
		}
		if n.accepted != n.freed || n.resizing || n.dues > 0 { // a core waits for its handshakes
			return false
		}
		for _, t := range n.throttles() {
			if t.Used() != 0 {
				return false // half a message of a peer that died without a word
			}
		}
	}
	for l := range w.current() {
		if l.waiting != nil && l.waiting.p.call == nil || l.missing() != 0 {
			return false
		}
	}
	return true
}

// current are the lanes of all channels of all nodes, in a fixed order.
func (w *world) current() iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		for _, n := range w.nodes {
			for _, ch := range n.channels {
				for _, l := range ch.lanes {
					if !yield(l) {
						return
					}
				}
			}
		}
	}
}

// checkCompleted fails for a message that must have come and has not, and for a sender that still waits.
func (w *world) checkCompleted(when string) {
	for l := range w.current() {
		ch := l.ch
		if number := l.missing(); number != 0 || l.waiting != nil && (!ch.over() || !w.foe.atWork()) {
			w.fail("node %d conn %d: while %s, message %d of %d of stream %d to node %d is missing, lost only up to %d, "+
				"the lane waits for room: %v (state %v, err %v)", ch.from.id, ch.conn.ID(), when, number, l.next, l.stream,
				ch.to.id, l.lost, l.waiting != nil, ch.conn.State(), ch.conn.Err())
		}
	}
}

// missing is the first message that should have arrived and has not.
func (l *lane) missing() uint64 {
	if l.ch.over() {
		return 0
	}
	for number := uint64(1); number <= l.next; number++ {
		if (number > l.lost && !l.excused(number) || l.goesOn(number)) && !l.arrived(number) {
			return number
		}
	}
	return 0
}

// finish ends all faults and lets everything arrive: within two maximum
// back-offs, the handshakes between them and the time until a dead connection
// is noticed.
func (w *world) finish() {
	w.quiet = true
	w.endFaults()
	w.net.Quiet()
	for _, n := range w.nodes {
		n.frozen = 0
	}
	w.births(true)
	w.endDrains()
	for _, n := range w.nodes {
		for len(n.kept) > 0 {
			n.let(n.kept[0])
		}
		for _, c := range n.m.Conns() {
			n.watch(c).paused = false
			n.resume(c)
		}
		for _, ch := range n.channels {
			switch {
			case ch.over():
			case ch.toLife != ch.to.life:
				n.markDown(ch.conn) // its peer will never be back
			default:
				ch.conn.Keepalive() // leaves standby, and so learns of resets
			}
		}
	}
	for _, n := range w.nodes {
		if !n.server() {
			n.comeBack(w.nodes[0]) // a server cannot reach a client that stays away
		}
	}
	w.still()
	limit := w.net.Now() + 100*time.Second
	for !w.failed {
		w.run(time.Second)
		if w.settled() && w.net.Now() > limit-97*time.Second || w.net.Now() > limit {
			break
		}
		if w.net.Now() > limit-50*time.Second {
			w.giveUp() // others may wait for their room
		}
	}
	w.giveUp()
	w.run(time.Second)
}

// giveUp ends the calls that nobody answers.
func (w *world) giveUp() {
	for l := range w.current() {
		for number := uint64(1); number <= l.next; number++ {
			if l.goesOn(number) && l.arrived(number) && !l.ch.over() {
				l.calls[number].giveUp()
			}
		}
	}
	w.still()
}

// starve has one user keep all that comes from a peer, or stop reading: everybody else goes on.
func (w *world) starve() {
	enough := w.plan.dispatch == 0 || w.plan.dispatch >= 64*loop.MinShared
	if oldBug(w.seed) || !w.plan.kind.lossless || w.plan.messages+w.plan.bytes > 0 || !enough || w.failed {
		return
	}
	var others []*lane
	for l := range w.current() {
		if l.free() && !l.ch.over() && l.ch.toLife == l.ch.to.life {
			others = append(others, l)
		}
	}
	for _, l := range others { // best one of two that come to the same node
		if w.hog == nil || slices.ContainsFunc(others, func(o *lane) bool { return o.ch.to == l.ch.to && o.ch != l.ch }) {
			w.hog = l.ch
		}
	}
	others = slices.DeleteFunc(others, func(l *lane) bool { return l.ch == w.hog })
	if len(others) == 0 {
		w.hog = nil
		return
	}
	n, hogs := w.hog.to, w.hog.lanes
	w.net.Note("node %d stops node %d", n.id, w.hog.from.id)
	if w.more.IntN(2) == 0 {
		for _, c := range n.m.Conns() {
			if v := n.watch(c); v.from == w.hog {
				v.paused, v.came = true, 0
				c.Pause()
			}
		}
	}
	size := int(max(w.plan.dispatch, 64*loop.MinShared) / 32)
	for range 100 {
		hogs[w.more.IntN(len(hogs))].send(0, size, false, simLast)
	}
	w.run(time.Second)
	for range 10 * len(others) {
		others[w.more.IntN(len(others))].send(0, w.more.IntN(4*size), false, simLast)
	}
	arrived := func() bool {
		return !slices.ContainsFunc(others, func(l *lane) bool { return l.missing() != 0 })
	}
	for limit := w.net.Now() + time.Minute; !arrived() && !w.failed; w.run(time.Second) {
		if w.net.Now() > limit {
			w.checkCompleted("one user keeps its messages")
			return
		}
	}
	if hogs[0].missing() > 0 {
		w.cover.Starved++
	}
	w.hog = nil
	w.finish()
}

// check compares the sent messages with those that arrived, when all faults are over.
func (w *world) check() {
	w.checkDoubts(true)
	w.checkCompleted("nothing disturbs")
	for _, n := range w.nodes {
		if n.resizing {
			w.fail("node %d: its cores are still being changed", n.id)
		}
		for _, ch := range n.channels {
			if ch.w.refused && !ch.over() {
				w.fail("node %d conn %d: Send said that it is over, and no event did", n.id, ch.conn.ID())
			}
		}
		if n.accepted != n.freed {
			w.fail("node %d: %d messages were sent, %d released", n.id, n.accepted, n.freed)
		}
		n.checkCalls()
		n.checkPostings(false)
		w.checkIdle(n)
	}
}

// checkIdle checks the gauges of a messenger on which nothing moves.
func (w *world) checkIdle(n *node) {
	n.checkThrottles()
	if deaf := n.host.Deaf(); deaf != 0 {
		w.fail("node %d: %d listeners accept nothing", n.id, deaf)
	}
	for _, c := range n.stats().Cores {
		w.cover.Paused += int(c.Paused)
		w.cover.TookBuffers += int(c.TookBuffers)
		w.cover.LeftBuffers += int(c.LeftBuffers)
		w.cover.NoBuffers += int(c.Driver.NoBuffers)
	}
	for _, c := range n.m.Conns() {
		var st control.ConnStats
		var err error
		w.wait("stats", func() { st, err = c.Stats() })
		if err != nil {
			w.fail("node %d conn %d: stats: %v", n.id, c.ID(), err)
		}
		if st.IO.Queued != 0 || st.IO.Sent != 0 || st.IO.Throttled {
			w.fail("node %d conn %d: not idle: %+v", n.id, c.ID(), st)
		}
		if c.Info().Protocol == control.Msgr1 && st.IO.Duplicates != 0 {
			w.fail("node %d conn %d: %d messages came again, which real daemons do not survive", n.id, c.ID(), st.IO.Duplicates)
		}
	}
}

// stats are those of the messenger.
func (n *node) stats() (st control.Stats) {
	n.w.wait("stats", func() {
		var err error
		if st, err = n.m.Stats(); err != nil {
			n.w.fail("node %d: stats: %v", n.id, err)
		}
	})
	return st
}

// throttles are those that the plan has.
func (n *node) throttles() []*loop.Throttle {
	list := []*loop.Throttle{n.m.DispatchThrottle()}
	for _, t := range []*loop.Throttle{n.policy.Messages, n.policy.Bytes} {
		if t != nil {
			list = append(list, t)
		}
	}
	return list
}

func (n *node) checkThrottles() {
	for _, t := range n.throttles() {
		if t.Used() != 0 || t.Waiting() != 0 {
			n.w.fail("node %d: a throttle holds %d, %d wait", n.id, t.Used(), t.Waiting())
		}
	}
}

// checkOver checks the state after Shutdown.
func (n *node) checkOver() {
	w := n.w
	for len(n.kept) > 0 {
		n.let(n.kept[0])
	}
	n.checkThrottles()
	w.still() // blocked senders have their error
	n.checkCalls()
	n.checkPostings(true)
	if n.accepted != n.freed {
		w.fail("node %d: after shutdown, %d messages were sent and %d released", n.id, n.accepted, n.freed)
	}
	for c := range n.conns {
		select {
		case <-c.Closed():
		default:
			w.fail("node %d: conn %d is not closed after shutdown", n.id, c.ID())
		}
	}
	st, _ := n.m.Stats() // its cores are gone, its counters are not
	w.cover.PartialResets += int(st.Counters.PartialResetsSent)
	if n.old() {
		w.cover.Waits1 += int(st.Counters.WaitsSent)
		w.cover.Retries1 += int(st.Counters.RetriesSent)
		w.cover.Resets1 += int(st.Counters.ResetsSent)
	}
	if st.Counters.IllegalTransitions != 0 || st.HalfOpen != 0 || st.Open != 0 || st.Counters.Conns != st.Counters.Closed {
		w.fail("node %d: after shutdown %+v", n.id, st)
	}
}
