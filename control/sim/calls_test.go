//go:build !race

package sim_test

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
)

// Half of the seeds have calls: messages of a lane that their receiver answers at once, later, or never.

// call is a request, and its fate.
type call struct {
	control.Request
	p        *parcel
	wait     bool               // it is a Conn.Call
	cancel   context.CancelFunc // its patience is over
	canceled bool
	ends     int // calls of the hook at its end
	returns  int // of Done, or of Conn.Call
	err      error
}

// requestHooks see the end of each call, also of those with a Call, on the core.
var requestHooks = &control.RequestHooks{Call: func(_ context.Context, _ *control.Conn, r *control.Request) func(*control.Message, error) {
	return r.Message.Context.(*parcel).call.ended
}}

// call gives one request to Start, or with wait to Call, on a lane.
func (l *lane) call(middle, data int, wait bool) {
	if !l.free() {
		return
	}
	n, w := l.ch.from, l.ch.from.w
	p := l.parcel(middle, data, simRequest)
	c := &call{p: p, wait: wait && l != l.ch.lanes[0]} // the first lane has the replies, which must not wait for those of others
	p.call, l.calls[p.number] = c, c
	c.Message, c.Done, c.cancel = &p.msg, func(_ *control.Request, reply *control.Message, err error) { c.returned(reply, err) }, c.Cancel
	if w.more.IntN(3) == 0 {
		c.Buffer = make([]byte, 1+w.more.IntN(600))
	}
	w.net.After(time.Duration(w.more.Int64N(int64(20*time.Second))), func() {
		if !w.quiet && p.process == n.process && !n.ending {
			c.giveUp()
		}
	})
	w.cover.Calls++
	if !c.wait {
		l.sent(p, l.ch.conn.Start(&c.Request))
		return
	}
	n.accepted++ // Call takes over the message in any case
	l.next++
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	var reply *control.Message
	var err error
	l.blocked(p, c.giveUp, func() { reply, err = l.ch.conn.Call(ctx, &p.msg, control.WithBuffer(c.Buffer)) }, func() { c.returned(reply, err) })
}

// giveUp ends a call that is under way.
func (c *call) giveUp() {
	if c.ends == 0 {
		c.canceled, c.p.n.w.woken = true, true
		c.cancel()
	}
}

// ended is the end of a call: on the core of its connection, or where Start or Call has failed.
func (c *call) ended(reply *control.Message, err error) {
	l, n := c.p.lane, c.p.n
	w := n.w
	c.err = err
	if c.ends++; c.ends > 1 {
		w.fail("node %d: call %d of stream %d ends twice", n.id, c.p.number, l.stream)
	}
	defer w.giveBack(c.Buffer)
	switch {
	case reply != nil:
		w.cover.Replies++
		n.got(l.ch.conn, reply, c)
	case c.canceled && errors.Is(err, context.Canceled):
		w.cover.CallsCanceled++
	case errors.Is(err, control.ErrSessionLost):
		w.cover.CallsLost++
	case errors.Is(err, control.ErrNotSent):
		if w.cover.CallsUnsent++; l.ch.to.life == l.ch.toLife && l.arrived(c.p.number) {
			w.fail("node %d: call %d of stream %d: %v, and it was dispatched", n.id, c.p.number, l.stream, err)
		}
	case errors.Is(err, control.ErrClosed), errors.Is(err, control.ErrTooManyCalls), errors.Is(err, control.ErrQueueFull):
		return // Start or Call has failed
	default:
		w.fail("node %d: call %d of stream %d: %v", n.id, c.p.number, l.stream, err)
	}
	if err != nil && !c.canceled && w.plan.kind.lossless {
		w.doubts = append(w.doubts, doubt{l, c.p.number, w.net.Now()}) // an event of a reset follows
	}
}

// returned is Done, or the end of Call.
func (c *call) returned(reply *control.Message, err error) {
	l, n := c.p.lane, c.p.n
	w := n.w
	if c.returns++; c.returns > 1 || c.ends != 1 || !errors.Is(err, c.err) || (reply == nil) == (err == nil) {
		w.fail("node %d: call %d of stream %d returns %v, %d times, and ended with %v, %d times", n.id, c.p.number, l.stream, err, c.returns, c.err, c.ends)
	}
	if c.wait {
		if reply != nil {
			reply.Release()
		}
		return
	}
	if !n.ending && (w.turn != n || w.core != l.ch.conn.Core().ID()) {
		w.fail("node %d: Done of call %d of stream %d not on its core", n.id, c.p.number, l.stream)
	}
	if w.more.IntN(8) == 0 && !w.quiet {
		l.call(0, w.more.IntN(300), false)
	}
}

// answered is the arrival of a reply to c, as the end of the call of, nil: at the dispatchers.
func (c *call) answered(of *call) {
	w := c.p.n.w
	switch {
	case of == nil && c.ends == 0 && !c.canceled:
		w.fail("node %d: the reply to call %d of stream %d came to the dispatchers", c.p.n.id, c.p.number, c.p.lane.stream)
	case of == nil:
		w.cover.LateReplies++
	case of != c:
		w.fail("node %d: the reply to call %d of stream %d ends call %d of stream %d", c.p.n.id, c.p.number, c.p.lane.stream, of.p.number, of.p.lane.stream)
	}
}

// excused says that a message need not arrive: it is a request that was withdrawn, or refused.
func (l *lane) excused(number uint64) bool {
	c := l.calls[number]
	return c != nil && (c.canceled || errors.Is(c.err, control.ErrRefused))
}

// goesOn says that a call is under way, and its connection lives: the request must arrive, also if its
// session was lost before it was written.
func (l *lane) goesOn(number uint64) bool {
	c := l.calls[number]
	return c != nil && c.ends == 0 && !c.canceled
}

// checkFull fails if a connection refuses a call while it has room.
func (n *node) checkFull(ch *channel, p *parcel) {
	n.w.cover.TooManyCalls++
	under := 0
	for _, l := range ch.lanes {
		for _, c := range l.calls {
			if c.returns == 0 || c.wait && c.canceled { // the core may not know yet
				under++
			}
		}
	}
	if under--; n.w.plan.callsMost == 0 || under < n.w.plan.callsMost { // the one that is refused is among them
		n.w.fail("node %d conn %d: call %d is one too many, with %d of %d", n.id, ch.conn.ID(), p.number, under, n.w.plan.callsMost)
	}
}

// checkCalls fails for a call that is under way when nothing moves.
func (n *node) checkCalls() {
	for _, l := range n.w.lanes {
		for number, c := range l.calls {
			if c.p.n == n && c.returns == 0 {
				n.w.fail("node %d: call %d of stream %d has not ended", n.id, number, l.stream)
			}
		}
	}
}

// asked answers a request that a node has got.
func (n *node) asked(c *control.Conn, m *control.Message, of *lane, to *call) {
	w := n.w
	if errors.Is(to.err, control.ErrNotSent) {
		w.fail("node %d got call %d of stream %d, which ended with %v", n.id, to.p.number, of.stream, to.err)
	}
	lane := n.answers(c, of.ch.from, of.ch.w.life).lanes[0]
	switch k := w.more.IntN(6); {
	case k == 0: // never
	case k < 3 && lane.free():
		p := lane.reply(to)
		lane.sent(p, c.Reply(m, &p.msg))
	default:
		n.later(c.Later(m), to)
	}
}

// reply makes the answer to a call.
func (l *lane) reply(to *call) *parcel {
	w := l.ch.from.w
	p := l.parcel(0, w.more.IntN(900), simReply)
	p.msg.Front = binary.LittleEndian.AppendUint64(p.msg.Front, to.p.lane.stream)
	p.msg.Front = binary.LittleEndian.AppendUint64(p.msg.Front, to.p.number)
	return p
}

// later gives a reply that is due some time, or says that there is none.
func (n *node) later(due control.PendingReply, to *call) {
	w, process, v := n.w, n.process, n.watch(due.Conn())
	remotes := v.remotes
	w.cover.Dues++
	n.dues++
	var give func()
	wait := func() { w.net.After(time.Duration(w.more.Int64N(int64(6*time.Second))), give) }
	give = func() {
		if process != n.process || n.m == nil || n.ending {
			return
		}
		lane := n.answers(due.Conn(), to.p.n, to.p.lane.ch.w.life).lanes[0]
		if lane.waiting != nil {
			wait()
			return
		}
		w.woken = true
		if lane.ch.over() || w.more.IntN(8) == 0 {
			n.dues--
			_ = due.Send(nil)
			return
		}
		p := lane.reply(to)
		err := due.Send(&p.msg)
		lane.sent(p, err)
		switch lost := v.remotes > remotes; {
		case errors.Is(err, control.ErrSessionLost):
			w.cover.DuesLost++
			fallthrough
		case err == nil:
			if lost != (err != nil) {
				w.fail("node %d conn %d: a reply that is due: %v, with %d remote resets since", n.id, due.Conn().ID(), err, v.remotes-remotes)
			}
		}
		n.dues--
	}
	wait()
}
