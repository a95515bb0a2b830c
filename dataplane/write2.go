package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// frameOverhead is more than what a gathered message frame takes besides its
// payload: preamble 32, header 41, crc 4, epilogue 17.
const frameOverhead = 128

// messageComplete is the flag byte that userland peers send.
const messageComplete = 3

func (r *framer2) carriesAcks() bool { return true }

// appendControl implements framer.
func (r *framer2) appendControl(b *flush, tag frame.Tag, payload [8]byte) error {
	b.local.scratch = payload
	out, err := r.enc.AppendFrame(b.w.Out, tag, b.local.scratch[:])
	b.w.Out = out
	if t := r.h.tap; t != nil && err == nil {
		t.Frame(probe.Frame{Sent: true, Tag: tag, Seg: [4][]byte{b.local.scratch[:]}})
	}
	return err
}

// appendMessage implements framer.
func (r *framer2) appendMessage(b *flush, m *Message) (fits bool, err error) {
	h, w := r.h, b.w
	hd := frame.MessageHeader{
		Seq: h.outSeq + 1, TID: m.TID, Type: m.Type, Priority: m.effectivePriority(), Version: m.Version,
		DataOff: m.DataOff, AckSeq: h.inSeq, Flags: messageComplete, CompatVersion: m.CompatVersion,
	}
	if r.enc.Gathers() {
		copied := b.copied(m)
		if w.Room() < frameOverhead+copied {
			return false, nil
		}
		w.Out = r.enc.AppendMessage(w.Out, &hd, len(m.Front), len(m.Middle), len(m.Data))
		b.payload(m, copied)
		m.sums(&b.sums, false, r.enc.SumsSegments(), r.enc.SumsSegments())
		w.Out = r.enc.AppendEnd(w.Out, &b.sums)
	} else {
		hd.Put(&b.local.header)
		if fits, err = r.appendSealed(w, m, &b.local.header); !fits {
			return false, err
		}
	}
	if t := h.tap; t != nil {
		hd.Put(&b.local.header)
		t.Frame(probe.Frame{Sent: true, Tag: frame.TagMessage, Seg: [4][]byte{b.local.header[:], m.Front, m.Middle, m.Data}})
	}
	return true, nil
}

// appendSealed appends a frame that is made as a whole: encrypted, straight from where
// its payload lies if that is large, or compressed.
func (r *framer2) appendSealed(w *loop.Write, m *Message, header *[frame.MessageHeaderSize]byte) (fits bool, err error) {
	size := r.enc.FrameSize(len(header), len(m.Front), len(m.Middle), len(m.Data))
	if size <= w.Room() {
		w.Out, err = r.enc.AppendFrame(w.Out, frame.TagMessage, header[:], m.Front, m.Middle, m.Data)
		return err == nil, err
	}
	if size <= loop.SlabBytes/2 {
		return false, nil // it has room in the next write
	}
	buf, err := w.Extra(size)
	if err != nil {
		return false, err
	}
	out, err := r.enc.AppendFrame(buf, frame.TagMessage, header[:], m.Front, m.Middle, m.Data)
	if err != nil {
		return false, err
	}
	w.Refer(out)
	return true, nil
}
