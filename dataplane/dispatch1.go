package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// received1 is a message of msgr1 that was checked.
type received1 struct {
	hd     *frame1.Header
	form   frame1.Form  // that hd came in
	segs   [3][]byte    // front, middle, data
	b      *loop.Buffer // that holds them; nil: they lie in a receive buffer
	sums   frame1.Sums
	summed [3]bool // which of the sums were computed
}

// message1 takes one message of msgr1, as message does one of msgr2. It carries no ack.
// taken is what the throttles hold for it.
func (h *Handler) message1(c *loop.Core, in *received1, taken loop.Charge) {
	hd := in.hd
	if t := h.tap; t != nil {
		t.Part(probe.Part{Kind: probe.PartOpen, Tag: frame1.TagMessage, Form: in.form, Header: hd, Seg: in.segs})
	}
	if hd.Seq <= h.inSeq {
		h.stats.duplicates++
		h.discard(c, in.b, taken)
		return
	}
	if !h.accept(hd.Seq) {
		h.discard(c, in.b, taken)
		return
	}
	m := h.local.lend()
	m.Type, m.Priority, m.Version, m.CompatVersion = hd.Type, hd.Priority, hd.Version, hd.CompatVersion
	m.TID, m.DataOff, m.seq = hd.TID, hd.DataOff, hd.Seq
	m.Front, m.Middle, m.Data = in.segs[0], in.segs[1], in.segs[2]
	m.buf, m.leased, m.charge = in.b, in.b == nil, taken
	m.crcs.take1(in)
	h.deliver(c, m)
}

// tapped says to who watches the socket what passes that is no message. body is what
// follows the tag.
func (h *Handler) tapped(sent bool, tag frame1.Tag, body []byte) {
	if t := h.tap; t != nil {
		t.Part(probe.Part{Sent: sent, Kind: probe.PartOpen, Tag: tag, Bytes: body})
	}
}
