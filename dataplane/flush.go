package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// gather builds one gathered write of everything that h has to send, in the
// order of msgr2.md 10.4: KEEPALIVE2, KEEPALIVE2_ACK, ACK unless a message
// carries it, then messages.
func (h *Handler) gather(s *loop.Socket, w *loop.Write) error {
	b := flush{h: h, c: s.Core(), s: s, w: w, local: h.local}
	if err := b.control(); err != nil {
		return err
	}
	err := b.messages()
	b.giveBack()
	return err
}

// flush is one write under construction.
type flush struct {
	h     *Handler
	c     *loop.Core
	s     *loop.Socket
	w     *loop.Write
	local *perCore
	left  int64 // messages that are written, and count as queued until giveBack
	bytes int64 // of theirs
	given bool  // the last reference to the message just appended is the write's
}

// control appends the frames that stand before messages.
func (b *flush) control() error {
	h := b.h
	if h.ping {
		if pass, err := b.mayWrite(frame.TagKeepalive2, nil); !pass {
			return err
		}
		h.ping = false
		h.seen.Sent = wall(b.c)
		h.unanswered.add(h.seen.Sent)
		if err := b.frame(frame.TagKeepalive2, h.seen.Sent.payload()); err != nil {
			return err
		}
	}
	if h.pong {
		if pass, err := b.mayWrite(frame.TagKeepalive2Ack, nil); !pass {
			return err
		}
		h.pong = false
		if err := b.frame(frame.TagKeepalive2Ack, h.seen.Received.payload()); err != nil {
			return err
		}
	}
	if h.unacked > 0 {
		if h.queue.n == 0 && !h.lossy {
			if pass, err := b.mayWrite(frame.TagAck, nil); !pass {
				return err
			}
			h.unacked = 0
			h.stats.acksOut++
			return b.frame(frame.TagAck, seqPayload(h.ackSeq()))
		}
		h.unacked = 0
		delete(h.shown, shownFrame{tag: frame.TagAck}) // held, and carried by a message now
	}
	return nil
}

// frame appends a control frame.
func (b *flush) frame(tag frame.Tag, payload [8]byte) error {
	b.local.scratch = payload
	out, err := b.h.rx.enc.AppendFrame(b.w.Out, tag, b.local.scratch[:])
	b.w.Out = out
	if t := b.h.tap; t != nil && err == nil {
		t.Frame(probe.Frame{Sent: true, Tag: tag, Seg: [4][]byte{b.local.scratch[:]}})
	}
	return err
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
		hd := frame.MessageHeader{
			Seq: h.outSeq + 1, TID: m.TID, Type: m.Type, Priority: m.Priority, Version: m.Version,
			DataOff: m.DataOff, AckSeq: h.ackSeq(), Flags: messageComplete, CompatVersion: m.CompatVersion,
		}
		if hd.Priority == 0 {
			hd.Priority = PriorityDefault
		}
		if pass, err := b.mayWrite(frame.TagMessage, m); !pass {
			return err
		}
		hd.Put(&b.local.header)
		fits, err := b.message(m)
		if err != nil {
			return err
		}
		if !fits {
			h.showed(frame.TagMessage, m)
			return nil
		}
		if t := h.tap; t != nil {
			t.Frame(probe.Frame{Sent: true, Tag: frame.TagMessage, Seg: [4][]byte{b.local.header[:], m.Front, m.Middle, m.Data}})
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

// lastOf says that nobody needs m or hears of it once it is written.
func (b *flush) lastOf(m *Message) bool {
	return b.h.lossy && m.tracker == nil && m.sole(b.local)
}

// giveBack takes what was written and is gone off the sending queue, once for all
// of it.
func (b *flush) giveBack() {
	if b.left > 0 {
		b.h.held.releaseAll(b.left, b.bytes)
		b.left, b.bytes = 0, 0
	}
}

// ackSeq is the number up to which the peer's messages have arrived.
func (h *Handler) ackSeq() uint64 {
	return h.inSeq
}

// messageComplete is the flag byte that userland peers send.
const messageComplete = 3

// message appends one message frame, or says that it has no room left.
func (b *flush) message(m *Message) (fits bool, err error) {
	enc, below := b.h.rx.enc, b.c.Config().CopyBelow
	lens := [4]int{frame.MessageHeaderSize, len(m.Front), len(m.Middle), len(m.Data)}
	if !enc.Gathers() {
		return b.sealed(m, enc.FrameSize(lens[0], lens[1], lens[2], lens[3]))
	}
	copied := 0
	for _, n := range lens[1:] {
		if n < below {
			copied += n
		}
	}
	if b.w.Room() < frameOverhead+copied {
		return false, nil
	}
	var known frame.CRCs
	m.knownCRCs(&known)
	if copied == m.Size() {
		b.w.Out, err = enc.AppendFrameKnown(b.w.Out, frame.TagMessage, &known, b.local.header[:], m.Front, m.Middle, m.Data)
		return true, err
	}
	b.w.Out = enc.AppendOpen(b.w.Out, frame.TagMessage, b.local.header[:], lens)
	b.payload(m, below)
	b.w.Out = enc.AppendCloseKnown(b.w.Out, b.local.header[:], [4][]byte{nil, m.Front, m.Middle, m.Data}, &known)
	return true, nil
}

// payload appends the segments of m: those of fewer than below bytes are copied, the
// write refers to the others.
func (b *flush) payload(m *Message, below int) {
	held := false
	for _, seg := range [3][]byte{m.Front, m.Middle, m.Data} {
		if len(seg) < below {
			b.w.Out = append(b.w.Out, seg...)
			continue
		}
		b.w.Refer(seg)
		held = true
	}
	switch {
	case held && b.lastOf(m):
		b.given = true
		b.w.Hold((*given)(m))
	case held:
		// The peer's ack may come before the kernel's answer.
		m.refs.Add(1)
		m.payload().queue()
		b.w.Hold((*written)(m))
	}
}

// written is a message whose payload a write refers to.
type written Message

// LetGo implements Held.
func (w *written) LetGo() {
	m := (*Message)(w)
	m.payload().dequeue()
	m.Release()
}

// given is a message of which a write has the last reference.
type given Message

// LetGo implements Held.
func (g *given) LetGo() { (*Message)(g).done() }

// frameOverhead is more than what a gathered message frame takes besides its
// payload: preamble 32, header 41, crc 4, epilogue 17.
const frameOverhead = 128

// sealed appends a frame that is made as a whole: encrypted, straight from where
// its payload lies if that is large, or compressed.
func (b *flush) sealed(m *Message, size int) (bool, error) {
	if size <= b.w.Room() {
		out, err := b.h.rx.enc.AppendFrame(b.w.Out, frame.TagMessage, b.local.header[:], m.Front, m.Middle, m.Data)
		b.w.Out = out
		return true, err
	}
	if size <= loop.SlabBytes/2 {
		return false, nil // it has room in the next write
	}
	buf, err := b.w.Extra(size)
	if err != nil {
		return false, err
	}
	out, err := b.h.rx.enc.AppendFrame(buf, frame.TagMessage, b.local.header[:], m.Front, m.Middle, m.Data)
	if err != nil {
		return false, err
	}
	b.w.Refer(out)
	return true, nil
}
