//go:build !race

package sim_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// watch is the view of a node's user on one connection.
type watch struct {
	life    int
	from    *channel // whose messages it brings
	live    bool     // accept or connect event
	moving  int      // core it is on its way to, + 1
	down    bool     // we marked it down
	drains  bool     // Drain was called
	refused bool     // Send said that it is over
	resets  int      // reset events
	remotes int      // remote reset events
	paused  bool     // by our user
	came    int      // messages since then
	filled  *posting // by the message that comes next
	seq     uint64   // of the last message
}

// incoming are the messages of one stream that a node received. A receiver that marked its
// connection down has no memory of it, so that a peer without reset check sends its messages
// without an ack again: exactly once holds for each connection object that lives.
type incoming struct {
	by   []*watch // by number: where it came
	last []lastNumber
}

type lastNumber struct {
	on       *watch
	priority uint16
	number   uint64
}

func (n *node) watch(c *control.Conn) *watch {
	v := n.conns[c]
	if v == nil {
		v = &watch{life: n.life}
		n.conns[c] = v
	}
	return v
}

func (n *node) dispatcher() *control.Dispatcher {
	w := n.w
	return &control.Dispatcher{
		Fast: n.receive,
		Accept: func(c *control.Conn, from int, replace bool) {
			v := n.called(c, "accept")
			w.foe.has(n, c)
			w.cover.Accepts++
			if v.live {
				w.cover.Replaced++
			}
			n.arrive(c, v, from)
		},
		Connect: func(c *control.Conn, from int) {
			v := n.called(c, "connect")
			w.cover.Connects++
			n.arrive(c, v, from)
		},
		Move: func(c *control.Conn, to int) {
			v := n.called(c, "move")
			w.cover.Moves++
			if to == c.Core().ID() {
				w.fail("node %d: conn %d moves to the core where it is", n.id, c.ID())
			}
			v.moving = to + 1
		},
		Moved: func(c *control.Conn, from int) {
			v := n.called(c, "moved")
			w.countMoved(c)
			live := v.live
			n.arrive(c, v, from)
			v.live = live
		},
		Reset: func(c *control.Conn, replace bool) {
			v := n.called(c, "reset")
			w.cover.Resets++
			if replace {
				w.cover.ReplaceResets++
			}
			if v.resets++; v.resets > 1 {
				w.fail("node %d: conn %d was reset twice", n.id, c.ID())
			}
			w.foe.calmReset(n, c, "reset")
			if !v.live && !w.foe.has(n, c) {
				// INV-04. Only a dial that is pointless to repeat ends so, and
				// no fault of the network makes one.
				w.fail("node %d: conn %d was reset before it was accepted or connected: %v", n.id, c.ID(), c.Err())
			}
			n.lose(c)
		},
		RemoteReset: func(c *control.Conn) {
			n.called(c, "remote reset")
			w.foe.calmReset(n, c, "remote reset")
			w.cover.RemoteResets++
			n.watch(c).remotes++
			n.lose(c)
		},
		KeepaliveAck: func(c *control.Conn, stamp time.Time) {
			w.foe.keepaliveAck(n, c, stamp)
			if v := n.called(c, "keepalive ack"); !v.live {
				w.fail("node %d: keepalive ack on conn %d before it was connected", n.id, c.ID())
			}
			w.cover.KeepaliveAcks++
			if c.Info().Protocol == control.Msgr1 {
				w.cover.KeepaliveAcks1++
			}
		},
	}
}

// called checks the rules of every callback: it runs on the connection's core, and at a time at
// which the user expects it.
func (n *node) called(c *control.Conn, what string) *watch {
	w := n.w
	w.net.Note("node %d conn %d: %s", n.id, c.ID(), what)
	v := n.watch(c)
	select {
	case <-c.Closed():
		w.fail("node %d: %s of conn %d after Closed", n.id, what, c.ID())
	default:
	}
	arrival := what == "accept" || what == "connect" || what == "moved"
	switch {
	case w.turn == nil && n.ending:
		// The cores run what is left to run as they stop.
	case w.turn != n || w.core != c.Core().ID():
		w.fail("node %d: %s of conn %d not on its core", n.id, what, c.ID())
	case v.moving != 0 && !arrival:
		w.fail("node %d: %s of conn %d between move and arrival", n.id, what, c.ID())
	case v.resets > 0:
		w.fail("node %d: %s of conn %d after its reset", n.id, what, c.ID())
	case v.drains && what == "reset":
		w.fail("node %d: %s of conn %d after its Drain", n.id, what, c.ID())
	case (v.down || n.rebinding && errors.Is(c.Err(), control.ErrRebound)) && (what == "message" || what == "reset" || what == "remote reset"):
		w.fail("node %d: %s of conn %d after it was marked down", n.id, what, c.ID())
	}
	return v
}

// arrive is an accept or connect event.
func (n *node) arrive(c *control.Conn, v *watch, from int) {
	switch {
	case from == c.Core().ID() && v.moving != 0, from != c.Core().ID() && v.moving != c.Core().ID()+1:
		n.w.fail("node %d: conn %d arrives on core %d from %d, its last move was to %d", n.id, c.ID(), c.Core().ID(), from, v.moving-1)
	}
	if c.Info().Protocol == control.Msgr1 {
		if n.w.cover.Opens1++; v.live {
			n.w.cover.Resumes1++
		}
	}
	v.moving, v.live = 0, true
}

// lose notes that an event declared all messages sent so far as possibly lost. The requests among
// them have ended, but for those that were not sent, which may go on; postings have ended.
func (n *node) lose(c *control.Conn) {
	for _, p := range n.posted {
		if p.c == c && p.early && p.ends == 0 {
			n.w.fail("node %d conn %d: its session is lost, and memory is posted for %d", n.id, c.ID(), p.TID)
		}
	}
	for _, ch := range n.channels {
		if ch.conn == c {
			for _, l := range ch.lanes {
				for number := uint64(1); number <= l.next; number++ {
					if l.goesOn(number) && l.ch.toLife == l.ch.to.life && l.arrived(number) {
						n.w.fail("node %d conn %d: its session is lost, and call %d of stream %d goes on", n.id, c.ID(), number, l.stream)
					}
				}
				l.lost = l.next
				if l.waiting != nil && l.waiting.p.call == nil {
					l.lost++ // it may be among those that were dropped
				}
			}
		}
	}
}

func (n *node) receive(c *control.Conn, m *control.Message) bool { return n.got(c, m, nil) }

// got is a message that came to the dispatcher, or as the reply of a call.
func (n *node) got(c *control.Conn, m *control.Message, of *call) bool {
	w := n.w
	v := n.called(c, "message")
	if !v.live {
		w.fail("node %d: message on conn %d before it was connected", n.id, c.ID())
	}
	if w.foe.message(n, c, m) {
		return true
	}
	if len(m.Front) != simFront && (m.Type != simReply || len(m.Front) != simFront+16) {
		w.fail("node %d: front of %d bytes", n.id, len(m.Front))
		return true
	}
	stream, number := binary.LittleEndian.Uint64(m.Front), binary.LittleEndian.Uint64(m.Front[8:])
	middle, data := int(binary.LittleEndian.Uint32(m.Front[16:])), int(binary.LittleEndian.Uint32(m.Front[20:]))
	l := w.lanes[stream]
	if l == nil || !bytes.Equal(m.Middle, simPayload(stream, number+1, middle)) || !bytes.Equal(m.Data, simPayload(stream, number, data)) {
		w.fail("node %d: message %d of stream %d is not what was sent", n.id, number, stream)
		return true
	}
	if m.Type == liveAnswer {
		w.live.received(c, m, stream, number)
		return true
	}
	if l.ch.to != n || l.ch.toLife != n.life {
		w.fail("node %d: message %d of stream %d is for node %d, life %d", n.id, number, stream, l.ch.to.id, l.ch.toLife)
	}
	w.net.Note("node %d got %d of %d", n.id, number, stream)
	w.cover.Messages++
	v.from = l.ch
	if v.came++; v.paused && v.came > 1 {
		w.fail("node %d: conn %d is paused, and brings message %d", n.id, c.ID(), v.came)
	}
	place := n.checkPlace(c, m, v, of)
	n.order(c, m, v, l, number)
	n.throttled(m)
	if w.live != nil {
		w.live.received(c, m, stream, number)
		return true
	}
	if m.Type == simReply {
		w.lanes[binary.LittleEndian.Uint64(m.Front[simFront:])].calls[binary.LittleEndian.Uint64(m.Front[simFront+8:])].answered(of)
	} else if of != nil {
		w.fail("node %d: message %d of stream %d ends a call", n.id, number, stream)
	} else {
		n.use(c, m, l, number)
	}
	if place != nil && !slices.Contains(n.kept, m) {
		w.giveBack(place)
	}
	return true
}

// order checks that a message is in order and not there already.
func (n *node) order(c *control.Conn, m *control.Message, v *watch, l *lane, number uint64) {
	w := n.w
	if !w.plan.kind.lossless && m.Seq() != v.seq+1 {
		w.fail("node %d: conn %d has a hole: %d after %d", n.id, c.ID(), m.Seq(), v.seq)
	}
	v.seq = m.Seq()
	in := n.streams[l.stream]
	if in == nil {
		in = new(incoming)
		n.streams[l.stream] = in
	}
	found := false
	for i := range in.last {
		if last := &in.last[i]; last.on == v && last.priority == m.Priority {
			if number <= last.number {
				w.fail("node %d: conn %d: message %d of stream %d after %d", n.id, c.ID(), number, l.stream, last.number)
			}
			last.number, found = number, true
		}
	}
	if !found {
		in.last = append(in.last, lastNumber{v, m.Priority, number})
	}
	for uint64(len(in.by)) <= number {
		in.by = append(in.by, nil)
	}
	if old := in.by[number]; old != nil {
		w.cover.Repeated++
		if old == v || !old.down && old.resets == 0 {
			w.fail("node %d: message %d of stream %d came twice", n.id, number, l.stream)
		}
	}
	in.by[number] = v
}

// throttled checks the bounds of held memory.
func (n *node) throttled(m *control.Message) {
	size := int64(m.Size())
	for _, one := range []struct {
		t     *loop.Throttle
		share int64
	}{{n.policy.Bytes, size}, {n.m.DispatchThrottle(), max(size, loop.MinShared)}} {
		// One message of any size passes: alone, or beside messages that are unfinished.
		if t := one.t; t != nil && t.Limit() > 0 && t.Used() > t.Limit()+n.w.largest && t.Used() != one.share && !n.lowered {
			n.w.fail("node %d: %d bytes held of %d", n.id, t.Used(), t.Limit())
		}
	}
	if t := n.policy.Messages; t != nil && t.Used() > t.Limit() && !n.lowered {
		n.w.fail("node %d: %d messages held of %d", n.id, t.Used(), t.Limit())
	}
}

// use calls the messenger from a dispatcher, as a user does.
func (n *node) use(c *control.Conn, m *control.Message, l *lane, number uint64) {
	w := n.w
	if n.ending {
		return
	}
	if m.Type == simRequest {
		n.asked(c, m, l, l.calls[number])
	}
	if w.plan.postings && !w.quiet && w.more.IntN(3) == 0 {
		n.post(c, m)
	}
	if w.hog == l.ch {
		n.keep(m, time.Hour)
	} else if w.plan.slow && !w.quiet && w.rng.IntN(4) == 0 {
		w.cover.Kept++
		n.keep(m, w.span(3*time.Second))
	}
	if w.plan.replies && m.Type == simMessage && w.rng.IntN(4) == 0 && !w.quiet {
		ch := n.answers(c, l.ch.from, l.ch.w.life)
		middle, data := w.sizes()
		ch.lanes[0].send(middle, data, false, simLast)
	}
	if w.rng.IntN(1000) == 0 && !w.quiet && !w.foe.calm() {
		w.cover.DownInDispatch++
		n.markDown(c)
	}
}

// keep retains a message for a while.
func (n *node) keep(m *control.Message, d time.Duration) {
	m.Retain()
	n.kept = append(n.kept, m)
	n.w.net.After(d, func() { n.let(m) })
}

// let releases a message that was retained, if that has not happened.
func (n *node) let(m *control.Message) {
	for i, k := range n.kept {
		if k == m {
			n.kept = append(n.kept[:i], n.kept[i+1:]...)
			m.Release()
			return
		}
	}
}
