package dataplane

import (
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Protocol and handler are joined by numbered events in both directions, as
// the two may be on different cores and the handler may move (Ceph's io_handler.cc).
// The sender numbers an event at the moment of the decision, the receiver runs
// them in the order of their numbers (Ordered).

// event is an event of the protocol for the handler.
type event struct {
	loop.Task
	h   *Handler
	n   uint64
	run func(h *Handler, c *loop.Core)
}

// post numbers an event, which takes so many numbers (2 for a move), and sends it to the owning
// core. The protocol calls it on one goroutine at a time.
func (h *Handler) post(steps uint64, run func(h *Handler, c *loop.Core)) {
	ev := &event{h: h, n: h.posted + 1, run: run}
	h.posted += steps
	ev.Task.Run = ev.arrive
	h.core.Post(&ev.Task)
}

// arrive runs the event if it is its turn, and then the events that waited for it.
func (ev *event) arrive(c *loop.Core) {
	h := ev.h
	if !h.in.Arrive(ev.n, ev) {
		countsOf(c).EarlyEvents++
		h.faultDetaching()
		return
	}
	ev.run(h, c)
	h.runEarly(c)
}

// runEarly runs the events that came early, as far as it is their turn now.
func (h *Handler) runEarly(c *loop.Core) {
	for h.core.Load() == c { // else it has moved: the second hop goes on
		ev, ok := h.in.Next()
		if !ok {
			return
		}
		ev.run(h, c)
	}
}

// OpenOptions are the properties of one connection of a session.
type OpenOptions struct {
	Lossy bool // no message is kept for replay or acknowledged
	// Codec encodes and decodes the frames of the protocol that the socket speaks.
	Codec Codec
	// Source is our name in messages of msgr1; messages of msgr2 have none.
	Source    Source
	Throttles *loop.Throttles // on received messages; nil: none
	// IdleAfter ends the connection after that time without a byte in either direction; 0: 900
	// s, negative: never.
	IdleAfter time.Duration
	// KeepaliveEvery sends a KEEPALIVE2 in this interval; 0: never.
	// KeepaliveTimeout ends the connection when the last one was not answered
	// for so long, or since the last byte of a message that is still coming, or since the peer
	// took bytes that are before it, at LeastRate as a whole; 0: never. A peer of msgr1 that
	// lacks KEEPALIVE2 is sent a KEEPALIVE, which has no answer, so that KeepaliveTimeout does
	// not end it.
	KeepaliveEvery   time.Duration
	KeepaliveTimeout time.Duration
	// LeastRate is the least number of bytes per second of an unfinished message, after
	// MessageGrace. While others wait for its units it is 16 times as much, after a tenth of
	// the time. The higher rate also holds for a lossy peer that takes messages for whose
	// memory others wait (Handler.Wanted). 0: 64 KiB and 10 s; negative: any rate, and no
	// grace.
	LeastRate    int64
	MessageGrace time.Duration
	// AlignFrom is the size of a received data segment, in bytes, from which it begins
	// on a page (Message.Data); 0: that of Config.LargeFrom, which holds in any case.
	AlignFrom int
	// Probe sees and disturbs the data phase; nil costs nothing.
	Probe *probe.Socket
	// Tap is called for each frame of the data phase; nil costs nothing.
	Tap probe.Tap
}

// Open hands the socket of link to the handler, which moves frames from now on. The handler
// must be on the link's core (Move), in state delay. If it was dropped or refused meanwhile,
// the socket is closed, and the bytes queued on it are not sent.
func (h *Handler) Open(link *loop.Link, opt OpenOptions) {
	h.post(1, func(h *Handler, c *loop.Core) { h.open(c, link, opt) })
}

func (h *Handler) open(c *loop.Core, link *loop.Link, opt OpenOptions) {
	s := link.Socket()
	h.tap = opt.Tap
	if h.dropped.Load() { // Close follows, or came before: the peer gets no more bytes
		h.tellTap(ErrDropped)
		if s != nil {
			s.Fault(ErrDropped)
		}
		opt.Codec.wipe()
		return
	}
	h.reportQueued = false
	h.local = localOf(c)
	h.pace = h.local.paceOf(&opt)
	h.lossy, h.throttles, h.probe = opt.Lossy, opt.Throttles, opt.Probe
	h.state = stateOpen
	h.stats.opens++
	if s == nil {
		// The peer has closed the socket already.
		opt.Codec.wipe()
		why := link.Cause()
		h.tellTap(why)
		h.fault(why)
		return
	}
	h.sock, h.unanswered = s, h.unanswered[:0]
	h.framer = opt.Codec.framer(h, opt.Source)
	h.takeInbox()
	h.watch(c)
	h.holdPaused(s)
	_ = link.Carry(h.framer) // the socket is there
	if h.state == stateOpen {
		h.mark()
	}
}

// Delay closes the socket, if there is one. With notify the owner gets a notification as soon
// as there is a message to send, possibly at once. answer, if not nil, gets the snapshot, on
// the core.
func (h *Handler) Delay(notify bool, answer func(Snapshot)) {
	h.post(1, func(h *Handler, c *loop.Core) {
		if h.state != stateDrop {
			h.closeSocket(loop.ErrLinkClosed)
			h.state = stateDelay
			h.takeInbox()
			h.reportQueued = notify
			if notify && h.pendingOut() {
				h.tellQueued()
			}
		}
		if answer != nil {
			answer(h.takeSnapshot())
		}
		h.useful = false
	})
}

// ResetSession forgets the session: everything queued and sent is dropped, but for
// messages of SendTracked that are not written yet, and both sequences start anew if
// full, else only the received sequence.
func (h *Handler) ResetSession(full bool) {
	h.post(1, func(h *Handler, _ *loop.Core) {
		h.inSeq, h.unacked = 0, 0
		if full {
			if h.clear(true) && h.draining != nil {
				h.draining.reset = true
			}
			h.outSeq = 0
		}
	})
}

// BeginAfter has the messages of a session begin with the number after seq (Ceph's
// ProtocolV1.cc). Call it after ResetSession(true); without it they begin with 1. It has no
// effect once messages have numbers.
func (h *Handler) BeginAfter(seq uint64) {
	h.post(1, func(h *Handler, _ *loop.Core) {
		if h.sent.n == 0 && h.queue.replay.n == 0 {
			h.outSeq = seq
		}
	})
}

// ResetPeerState prepares for a peer that does not know the session: sent messages are queued
// again, under numbers that start at 1 in both directions.
func (h *Handler) ResetPeerState() {
	h.post(1, func(h *Handler, _ *loop.Core) {
		h.inSeq, h.unacked = 0, 0
		h.requeue()
		h.outSeq = 0
	})
}

// RequeueSent queues everything again that was sent and not acknowledged.
func (h *Handler) RequeueSent() {
	h.post(1, func(h *Handler, _ *loop.Core) { h.requeue() })
}

// RequeueSentUpTo drops the sent messages up to seq, which the peer has received, and queues
// the others again. An acknowledged number is never used again (Ceph's ProtocolV2.cc,
// ProtocolV1.cc): if no message is left, a number above our own is taken over. The caller
// bounds it.
func (h *Handler) RequeueSentUpTo(seq uint64) {
	h.post(1, func(h *Handler, _ *loop.Core) {
		if h.sent.n == 0 && (h.queue.replay.n == 0 || h.outSeq == 0) {
			h.outSeq = max(h.outSeq, seq)
			return
		}
		h.acked(seq)
		h.requeue()
	})
}

// requeue rolls the sending sequence back over the sent messages, so that they go out again
// under their old numbers.
func (h *Handler) requeue() {
	h.outSeq -= uint64(h.sent.n)
	h.stats.requeued += uint64(h.sent.n)
	h.queue.requeue(&h.sent)
}

// Move brings the handler to core to in two hops: on the old core the owner gets Moving (if
// the core changes), on the new one Moved. The handler must not be open. Move takes two
// numbers, so that no event can come between the hops. done runs on the new core after them.
// From the call on the handler counts at the new core: the target stays alive until the
// handler has arrived.
func (h *Handler) Move(to *loop.Core, ev MoveCause, done func()) {
	to.Expect(1)
	h.post(2, func(h *Handler, c *loop.Core) {
		if to != c {
			to.AddLoad(1)
		}
		to.Expect(-1) // before the hop, which wakes the core: it may wait for this to end
		h.hop(c, to, ev, nil, done)
	})
}

// hop is the first of two: the handler leaves its core. It counts at the new one
// already. l is nil if there is no socket.
func (h *Handler) hop(c, to *loop.Core, ev MoveCause, l *migrationState, done func()) {
	if to == c {
		h.arrived(c, c, ev, l, done)
		return
	}
	if h.state != stateDrop {
		h.owner.Moving(h, to)
	}
	countsOf(c).MovedAway++
	c.AddLoad(-1)
	h.draining.leaves(c)
	h.core.Store(to) // our last touch
	to.Post(&loop.Task{Run: func(c2 *loop.Core) { h.arrived(c2, c, ev, l, done) }})
}

// passSecond has the second number of a move had its turn.
func (h *Handler) passSecond() { h.in.last++ }

// arrived is the second hop.
func (h *Handler) arrived(c, from *loop.Core, ev MoveCause, l *migrationState, done func()) {
	h.passSecond()
	if h.state != stateDrop {
		h.owner.Moved(h, from, ev)
	}
	if l != nil {
		h.attachState(c, l)
	}
	if c != from {
		countsOf(c).MovedHere++
		h.attend(c)
		h.draining.look(c)
	}
	if done != nil {
		done()
	}
	if c != from {
		// On the same core the first hop's loop goes on.
		h.runEarly(c)
	}
}

// Notify gives the owner the notification what, in order with the other events.
func (h *Handler) Notify(what any) {
	h.post(1, func(h *Handler, _ *loop.Core) { h.owner.Happened(h, what) })
}

// Refuse stops the handler at once, before the event that closes it: Send fails and no message
// is dispatched. Any goroutine.
func (h *Handler) Refuse() {
	if !h.dropped.Swap(true) {
		h.held.wake()
	}
}

// Close is the last event: the socket is closed, and everything queued is released. done runs
// on the core after it.
func (h *Handler) Close(done func()) {
	h.Refuse()
	h.post(1, func(h *Handler, c *loop.Core) {
		h.draining.closes(c)
		h.state = stateDrop
		h.reportQueued = false
		h.closeSocket(ErrDropped)
		h.clear(false)
		c.AddLoad(-1)
		if done != nil {
			done()
		}
	})
}

// Ordered puts numbered items back into their order. Items between two cores take more than
// one queue, so that a later item can come earlier. The sender numbers its items from 1, each
// number once, and the receiver has an Ordered. It gives item n+1 its turn after item n, and
// keeps items that come too early. The zero value waits for number 1. Only its owner, one at a
// time, touches it.
type Ordered[T any] struct {
	last  uint64 // that had its turn
	early map[uint64]T
}

// Arrive says whether it is the turn of item n, which has had it then. If not,
// the queue keeps the item for Next.
func (q *Ordered[T]) Arrive(n uint64, item T) bool {
	if n == q.last+1 {
		q.last = n
		return true
	}
	if q.early == nil {
		q.early = make(map[uint64]T)
	}
	q.early[n] = item
	return false
}

// Next takes the item that is next in order, if it has come early.
func (q *Ordered[T]) Next() (item T, ok bool) {
	if item, ok = q.early[q.last+1]; ok {
		q.last++
		delete(q.early, q.last)
	}
	return item, ok
}
