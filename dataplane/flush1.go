package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// ackSize is what an ACK of msgr1 takes, in bytes. Every write has room left for one.
const ackSize = 9

// gather1 builds one gathered write of everything that h has to send, in the order of
// msgr1.md 16: keepalives, messages, and one ACK for all that was received.
func (h *Handler) gather1(r *framer1, s *loop.Socket, w *loop.Write) error {
	b := flush1{flush: flush{h: h, c: s.Core(), s: s, w: w, local: h.local}, r: r}
	if err := b.keepalives(); err != nil {
		return err
	}
	err := b.messages()
	b.giveBack()
	if err != nil {
		return err
	}
	return b.ack()
}

// flush1 is one write of msgr1 under construction.
type flush1 struct {
	flush
	r *framer1
}

// keepalives appends ours and the answer to the peer's.
func (b *flush1) keepalives() error {
	h, w := b.h, b.w
	if h.ping {
		if pass, err := b.mayWrite(frame.TagKeepalive2, nil); !pass {
			return err
		}
		h.ping = false
		h.seen.Sent = wall(b.c)
		if h.framer.answers() {
			h.unanswered.add(h.seen.Sent)
		}
		from := len(w.Out)
		w.Out = b.r.enc.Form().AppendKeepalive(w.Out, h.seen.Sent.payload())
		h.tapped(true, frame1.Tag(w.Out[from]), w.Out[from+1:])
	}
	if h.pong {
		if pass, err := b.mayWrite(frame.TagKeepalive2Ack, nil); !pass {
			return err
		}
		h.pong = false
		w.Out = frame1.AppendKeepaliveAck(w.Out, h.seen.Received.payload())
		h.tapped(true, frame1.TagKeepalive2Ack, w.Out[len(w.Out)-8:])
	}
	return nil
}

// messages appends queued messages until the queue is empty or the write is
// full; the rest follows in the next one.
func (b *flush1) messages() error {
	h := b.h
	for {
		m := h.queue.peek()
		if m == nil || h.holdOut || b.w.Full() {
			return nil
		}
		if pass, err := b.mayWrite(frame.TagMessage, m); !pass {
			return err
		}
		if !b.message(m) {
			h.showed(frame.TagMessage, m)
			return nil
		}
		b.wrote(m)
	}
}

// message appends one message, or says that it has no room left.
func (b *flush1) message(m *Message) (fits bool) {
	enc, w, below := b.r.enc, b.w, b.c.Config().CopyBelow
	copied := 0
	for _, seg := range [3][]byte{m.Front, m.Middle, m.Data} {
		if len(seg) < below {
			copied += len(seg)
		}
	}
	if w.Room() < enc.Overhead()+ackSize+copied {
		return false
	}
	hd := frame1.Header{
		Seq: b.h.outSeq + 1, TID: m.TID, Type: m.Type, Priority: m.effectivePriority(), Version: m.Version,
		FrontLen: uint32(len(m.Front)), MiddleLen: uint32(len(m.Middle)), DataLen: uint32(len(m.Data)), DataOff: m.DataOff,
		SrcType: b.r.source.Type, SrcNum: b.r.source.Num, CompatVersion: m.CompatVersion,
	}
	w.Out = enc.AppendHeader(w.Out, &hd)
	b.payload(m, below)
	w.Out = enc.AppendFooter(w.Out, &hd, m.sums1(enc.Checks()))
	if t := b.h.tap; t != nil {
		told := hd // the header itself stays on the stack
		t.Part(probe.Part{Sent: true, Kind: probe.PartOpen, Tag: frame1.TagMessage, Form: enc.Form(), Header: &told, Seg: [3][]byte{m.Front, m.Middle, m.Data}})
	}
	return true
}

// ack appends an ACK for everything that was received. A lossy session has none.
func (b *flush1) ack() error {
	h := b.h
	if h.unacked == 0 || h.holdOut {
		return nil
	}
	if !h.lossy {
		if pass, err := b.mayWrite(frame.TagAck, nil); !pass {
			return err
		}
		h.stats.acksOut++
		b.w.Out = frame1.AppendAck(b.w.Out, h.ackSeq())
		h.tapped(true, frame1.TagAck, b.w.Out[len(b.w.Out)-8:])
	}
	h.unacked = 0
	return nil
}
