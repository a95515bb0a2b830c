package dataplane

import (
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"
)

// Protocol and handler are joined by numbered events in both directions, as
// the two may be on different cores and the handler may move (msgr2.md 10.3).
// The sender numbers an event at the moment of the decision; the receiver
// runs number n+1 only after n, and keeps what comes too early.

// event is something that the protocol tells the handler.
type event struct {
	task
	h     *Handler
	n     uint64
	steps uint64 // numbers it takes: 2 for a move, 1 for all others
	run   func(h *Handler, c *Core)
}

// post numbers an event and sends it to the owning core. The caller holds the
// protocol's lock.
func (h *Handler) post(steps uint64, run func(h *Handler, c *Core)) {
	ev := &event{h: h, n: h.posted + 1, steps: steps, run: run}
	h.posted += steps
	ev.task.run = ev.arrive
	h.core.Load().post(&ev.task)
}

// arrive runs the event if it is its turn, and those that waited for it.
func (ev *event) arrive(c *Core) {
	h := ev.h
	if owner := h.core.Load(); owner != c {
		owner.post(&ev.task) // it has moved
		return
	}
	if mutant.SwapEvents {
		if ev.n%2 == 1 && ev.steps == 1 {
			ev.steps = 0 // the second time it runs
			c.post(&ev.task)
			return
		}
		h.in = ev.n
		ev.run(h, c)
		return
	}
	if ev.n != h.in+1 {
		h.early = append(h.early, ev)
		c.stats.EarlyEvents++
		h.hurry()
		return
	}
	for ev != nil {
		h.in = ev.n
		ev.run(h, c)
		if h.core.Load() != c {
			return // it moved; the second hop goes on
		}
		ev = h.nextEarly()
	}
}

// nextEarly takes the event whose turn it is out of those that came early.
func (h *Handler) nextEarly() *event {
	for i, ev := range h.early {
		if ev.n == h.in+1 {
			h.early = slices.Delete(h.early, i, i+1)
			return ev
		}
	}
	return nil
}

// OpenOptions are the properties of one connection of a session.
type OpenOptions struct {
	Lossy     bool // nothing is kept for replay, nothing acknowledged
	Encoder   *frame.Encoder
	Decoder   *frame.Decoder
	Throttles *Throttles // on received messages; nil: none
	// IdleAfter ends the connection when nothing was received or sent for so
	// long; 0: never.
	IdleAfter time.Duration
	// KeepaliveEvery sends a KEEPALIVE2 in this interval; 0: never.
	// KeepaliveTimeout ends the connection when the last one was not answered
	// for so long; 0: never.
	KeepaliveEvery   time.Duration
	KeepaliveTimeout time.Duration
	// Hook disturbs the data phase; nil costs nothing.
	Hook FrameHook
}

// Open hands the socket of link to the handler, which moves frames from now
// on. The handler must be on the link's core (Move), in state delay. If it
// was dropped in the meantime the socket is closed.
func (h *Handler) Open(link *Link, opt OpenOptions) {
	h.post(1, func(h *Handler, c *Core) { h.open(c, link, opt) })
}

func (h *Handler) open(c *Core, link *Link, opt OpenOptions) {
	s := link.sock
	if h.state == StateDrop {
		if s != nil {
			s.fault(ErrDropped)
		}
		opt.Encoder.Wipe()
		opt.Decoder.Wipe()
		return
	}
	h.notify = false
	h.options, h.lossy, h.throttles = opt, opt.Lossy, opt.Throttles
	h.state = StateOpen
	h.stats.Opens++
	if s == nil {
		// The peer was faster than we: the socket is lost already.
		opt.Encoder.Wipe()
		opt.Decoder.Wipe()
		h.state = StateDelay
		h.out++
		h.cfg.Owner.Faulted(h.out, ErrLinkClosed, h.mirror())
		return
	}
	h.sock, h.enc = s, opt.Encoder
	c.stats.Handlers++
	h.takeInbox()
	s.watch(h)
	s.attach(h, opt.Decoder)
	if h.state == StateOpen {
		c.markDirty(h)
	}
}

// Delay closes the socket, if there is one. With notify the owner is told as
// soon as there is something to send, at once if there is already. answer, if
// not nil, gets the mirror, on the core.
func (h *Handler) Delay(notify bool, answer func(Mirror)) {
	h.post(1, func(h *Handler, c *Core) {
		if h.state != StateDrop {
			h.closeSocket(ErrLinkClosed)
			h.state = StateDelay
			h.takeInbox()
			h.notify = notify
			if notify && h.pendingOut() {
				h.tellQueued()
			}
		}
		if answer != nil {
			answer(h.mirror())
		}
	})
}

// ResetSession forgets the session: everything queued and sent is dropped and
// both sequences start anew if full, else only the received sequence.
func (h *Handler) ResetSession(full bool) {
	h.post(1, func(h *Handler, _ *Core) {
		h.inSeq, h.owed = 0, 0
		if full {
			h.clear()
			h.outSeq = 0
		}
	})
}

// ResetPeerState prepares for a peer that knows nothing of the session: what
// was sent is queued again, under numbers that start at 1 in both directions.
func (h *Handler) ResetPeerState() {
	h.post(1, func(h *Handler, _ *Core) {
		if !mutant.KeepInSeq {
			h.inSeq, h.owed = 0, 0
		}
		h.requeue()
		h.outSeq = 0
	})
}

// RequeueSent queues everything again that was sent and not acknowledged.
func (h *Handler) RequeueSent() {
	h.post(1, func(h *Handler, _ *Core) { h.requeue() })
}

// RequeueSentUpTo drops what the peer reported as received, up to seq, and
// queues the rest of what was sent again. A number that the peer has
// acknowledged is never used again (msgr2.md 9.12).
func (h *Handler) RequeueSentUpTo(seq uint64) {
	h.post(1, func(h *Handler, _ *Core) {
		if h.sent.n == 0 && h.queue.n == 0 && !h.inboxed() {
			h.outSeq = max(h.outSeq, seq)
			return
		}
		h.acked(seq)
		h.requeue()
	})
}

// requeue rolls the sending sequence back over what was sent, so that it goes
// out again under its old numbers.
func (h *Handler) requeue() {
	if mutant.ForgetRequeue {
		return
	}
	h.outSeq -= uint64(h.sent.n)
	h.stats.Requeued += uint64(h.sent.n)
	h.queue.requeue(&h.sent)
}

// Move brings the handler to core to in two hops: on the old core the owner
// hears Moving (if the core changes), on the new one Moved. It must not be
// open. It takes two numbers, so that nothing can come between the hops. done
// runs on the new core behind them. From the call on the new core expects the
// handler: if it is being removed, it is not gone before that arrives.
func (h *Handler) Move(to *Core, ev Arrival, done func()) {
	to.expected.Add(1)
	h.post(2, func(h *Handler, c *Core) {
		if to != c && h.state != StateDrop && !mutant.MoveUnannounced {
			h.cfg.Owner.Moving(h, to)
		}
		second := &task{run: func(c2 *Core) {
			c2.expected.Add(-1)
			h.arrived(c2, c, ev, done)
		}}
		if to == c {
			second.run(c)
			return
		}
		to.load.Add(1)
		h.hop(c, to, second)
	})
}

// hop is the first of two: the handler leaves its core. It counts at the new one
// already.
func (h *Handler) hop(c, to *Core, second *task) {
	c.forget(h)
	c.stats.MovedAway++
	c.load.Add(-1)
	h.core.Store(to) // our last touch
	to.post(second)
}

// arrived is the second hop.
func (h *Handler) arrived(c, from *Core, ev Arrival, done func()) {
	h.in++
	if c != from {
		c.stats.MovedHere++
	}
	if h.state != StateDrop {
		h.cfg.Owner.Moved(h, from, ev)
	}
	if done != nil {
		done()
	}
	if c != from {
		// On the same core the first hop's loop goes on.
		if next := h.nextEarly(); next != nil {
			next.arrive(c)
		}
	}
}

// Notify has the owner hear what, in its place among the other events.
func (h *Handler) Notify(what any) {
	h.post(1, func(h *Handler, _ *Core) { h.cfg.Owner.Happened(h, what) })
}

// Refuse stops the handler at once, ahead of the event that closes it: Send
// fails and nothing more is dispatched. Any goroutine.
func (h *Handler) Refuse() {
	h.dropped.Store(true)
	h.held.wake()
}

// Close is the last event: the socket is closed, everything queued is
// released. done runs on the core behind it.
func (h *Handler) Close(done func()) {
	h.Refuse()
	h.post(1, func(h *Handler, c *Core) {
		h.state = StateDrop
		h.notify = false
		h.closeSocket(ErrDropped)
		h.clear()
		c.forget(h)
		c.load.Add(-1)
		if done != nil {
			done()
		}
	})
}
