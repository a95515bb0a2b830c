package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// gather builds one gathered write of everything that h has to send, in the order of
// io_handler.cc and ProtocolV1.cc: KEEPALIVE2, KEEPALIVE2_ACK, messages, and an ACK unless a
// message carries it. Each framer appends the bytes of its protocol.
func (h *Handler) gather(s *loop.Socket, w *loop.Write) error {
	b := &h.local.flush // it would escape
	*b = flush{h: h, c: s.Core(), s: s, w: w, local: h.local, f: h.framer}
	err := b.run()
	*b = flush{}
	return err
}

// run appends everything.
func (b *flush) run() error {
	h := b.h
	if err := b.keepalives(); err != nil {
		return err
	}
	if b.f.carriesAcks() && h.unacked > 0 && !h.holdOut && (h.queue.n > 0 || h.lossy) {
		h.unacked = 0
		delete(h.shown, shownFrame{tag: frame.TagAck}) // held, and carried by a message now
	}
	err := b.messages()
	b.giveBack()
	if err != nil {
		return err
	}
	return b.ack()
}

// copyBelow is the size from which a segment is not copied beside its frame's header: the write
// refers to it.
const copyBelow = 2 << 10

// flush is one write under construction.
type flush struct {
	h     *Handler
	c     *loop.Core
	s     *loop.Socket
	w     *loop.Write
	f     framer
	local *perCore
	left  int64 // messages that are written, and count as queued until giveBack
	bytes int64 // of theirs
	sums  [3]uint32
	given bool // the last reference to the message just appended is the write's
}

// keepalives appends ours and the answer to the peer's.
func (b *flush) keepalives() error {
	h := b.h
	if h.ping {
		if pass, err := b.mayWrite(frame.TagKeepalive2, nil); !pass {
			return err
		}
		h.ping = false
		h.seen.Sent = wall(b.c)
		h.askedAt = min(h.askedAt, b.s.Written())
		if b.f.answers() {
			h.unanswered.add(h.seen.Sent)
		}
		if err := b.f.appendControl(b, frame.TagKeepalive2, h.seen.Sent.payload()); err != nil {
			return err
		}
	}
	if h.pong {
		if pass, err := b.mayWrite(frame.TagKeepalive2Ack, nil); !pass {
			return err
		}
		h.pong = false
		return b.f.appendControl(b, frame.TagKeepalive2Ack, h.seen.Received.payload())
	}
	return nil
}

// ack appends an ACK for everything that was received. A lossy session has none.
func (b *flush) ack() error {
	h := b.h
	if h.unacked == 0 || h.holdOut {
		return nil
	}
	if !h.lossy {
		if pass, err := b.mayWrite(frame.TagAck, nil); !pass {
			return err
		}
		h.stats.acksOut++
		if err := b.f.appendControl(b, frame.TagAck, seqPayload(h.inSeq)); err != nil {
			return err
		}
	}
	h.unacked = 0
	return nil
}

// messages appends queued messages until the queue is empty or the write is
// full; the rest follows in the next one.
func (b *flush) messages() error {
	h := b.h
	for {
		m := h.queue.peek()
		if m == nil || h.holdOut || b.w.Full() {
			return nil
		}
		if h.probe != nil {
			if pass, err := b.mayWrite(frame.TagMessage, m); !pass {
				return err
			}
		}
		fits, err := b.f.appendMessage(b, m)
		if err != nil {
			return err
		}
		if !fits {
			h.showed(frame.TagMessage, m)
			return nil
		}
		b.wrote(m)
	}
}

// wrote takes m, which is in the write now, out of the queue.
func (b *flush) wrote(m *Message) {
	h := b.h
	h.outSeq++
	m.seq = h.outSeq
	h.queue.pop()
	h.stats.messagesOut++
	h.stats.bytesOut += uint64(m.Size())
	b.local.counts.MessagesOut++
	m.timeWrite(b.c)
	switch {
	case b.lastOf(m):
		b.left++
		b.bytes += m.queuedBytes
		if !b.given {
			m.done()
		}
		b.given = false
	case h.lossy:
		b.giveBack() // users may look
		t := h.uncharge(m, OutcomeWritten)
		m.releaseOn(b.local)
		left(t, OutcomeWritten)
	default:
		h.sent.push(m)
		if t := m.tracker; t != nil {
			m.tracker = nil
			t.Left(OutcomeWritten)
		}
	}
}

// lastOf reports that m is not needed any more once it is written.
func (b *flush) lastOf(m *Message) bool {
	return b.h.lossy && m.tracker == nil && m.sole(b.local)
}

// giveBack takes the written and released messages off the sending queue, all at once.
func (b *flush) giveBack() {
	if b.left > 0 {
		b.h.held.releaseAll(b.left, b.bytes)
		b.left, b.bytes = 0, 0
	}
}

// copied is the number of copied bytes of the payload of m.
func (b *flush) copied(m *Message) (n int) {
	if len(m.Front) < copyBelow {
		n = len(m.Front)
	}
	if len(m.Middle) < copyBelow {
		n += len(m.Middle)
	}
	if len(m.Data) < copyBelow {
		n += len(m.Data)
	}
	return n
}

// payload appends the segments of m: small ones are copied, copied bytes of them, the write
// refers to the others.
func (b *flush) payload(m *Message, copied int) {
	w := b.w
	if len(m.Front) > 0 {
		b.segment(m.Front)
	}
	if len(m.Middle) > 0 {
		b.segment(m.Middle)
	}
	if len(m.Data) > 0 {
		b.segment(m.Data)
	}
	if copied == m.Size() {
		return
	}
	if b.lastOf(m) {
		b.given = true
		w.Hold((*given)(m))
		return
	}
	// The peer's ack may come before the kernel's answer.
	m.refs.Add(1)
	m.payload().queue()
	w.Hold((*written)(m))
}

func (b *flush) segment(p []byte) {
	if len(p) < copyBelow {
		b.w.Out = append(b.w.Out, p...)
	} else {
		b.w.Refer(p)
	}
}

// written is a message with payload to which a write refers.
type written Message

// LetGo implements Held.
func (w *written) LetGo() {
	m := (*Message)(w)
	m.dequeue()
	m.Release()
}

// given is a message of which a write has the last reference.
type given Message

// LetGo implements Held.
func (g *given) LetGo() { (*Message)(g).done() }
