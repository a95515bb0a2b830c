package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// ackSize is what an ACK of msgr1 takes, in bytes. Every write has room left for one.
const ackSize = 9

func (r *framer1) carriesAcks() bool { return false }

// appendControl implements framer.
func (r *framer1) appendControl(b *flush, tag frame.Tag, payload [8]byte) error {
	w := b.w
	from := len(w.Out)
	switch tag {
	case frame.TagKeepalive2:
		w.Out = r.enc.Form().AppendKeepalive(w.Out, payload)
	case frame.TagKeepalive2Ack:
		w.Out = frame1.AppendKeepaliveAck(w.Out, payload)
	default:
		w.Out = frame1.AppendAck(w.Out, sequenceOf(payload))
	}
	r.h.tapped(true, frame1.Tag(w.Out[from]), w.Out[from+1:])
	return nil
}

// appendMessage implements framer.
func (r *framer1) appendMessage(b *flush, m *Message) (fits bool, err error) {
	enc, w, copied := r.enc, b.w, b.copied(m)
	if w.Room() < enc.Overhead()+ackSize+copied {
		return false, nil
	}
	hd := frame1.Header{
		Seq: r.h.outSeq + 1, TID: m.TID, Type: m.Type, Priority: m.effectivePriority(), Version: m.Version,
		FrontLen: uint32(len(m.Front)), MiddleLen: uint32(len(m.Middle)), DataLen: uint32(len(m.Data)), DataOff: m.DataOff,
		SrcType: r.source.Type, SrcNum: r.source.Num, CompatVersion: m.CompatVersion,
	}
	w.Out = enc.AppendHeader(w.Out, &hd)
	b.payload(m, copied)
	front, data := enc.Checks()
	m.sums(&b.sums, true, front, data)
	w.Out = enc.AppendFooter(w.Out, &hd, frame1.Sums{Front: b.sums[0], Middle: b.sums[1], Data: b.sums[2]})
	if t := r.h.tap; t != nil {
		told := hd // the header itself stays on the stack
		t.Part(probe.Part{Sent: true, Kind: probe.PartOpen, Tag: frame1.TagMessage, Form: enc.Form(), Header: &told, Seg: m.segments()})
	}
	return true, nil
}
