package dataplane

import (
	"encoding/binary"
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"
)

// frame takes one complete frame of the data phase. b is the buffer of its
// payload, nil if that lies in a receive buffer; taken is what the throttles
// hold for it.
func (h *Handler) frame(s *socket, f *frame.Frame, b *buffer, taken throttled) {
	c := s.core
	c.stats.FramesIn++
	if f.Aborted {
		// As if it had never been sent (msgr2.md 5.7).
		c.stats.Aborted++
		h.discard(c, b, taken)
		return
	}
	if f.Tag == frame.TagMessage {
		if err := h.message(s, f, b, taken); err != nil {
			s.fault(err)
		}
		return
	}
	err := h.control(c, f)
	h.discard(c, b, taken)
	if err != nil {
		s.fault(err)
	}
}

// discard lets go of a frame that is not dispatched.
func (h *Handler) discard(c *Core, b *buffer, taken throttled) {
	taken.giveBack()
	if b != nil {
		c.pool.put(b)
	}
}

// control handles the frames that are not messages.
func (h *Handler) control(c *Core, f *frame.Frame) error {
	p := f.Seg[0]
	switch f.Tag {
	case frame.TagAck:
		if len(p) < 8 {
			return fmt.Errorf("%w: ack of %d bytes", ErrUnexpectedFrame, len(p))
		}
		h.stats.AcksIn++
		h.acked(binary.LittleEndian.Uint64(p))
	case frame.TagKeepalive2:
		t, ok := parseTimestamp(p)
		if !ok {
			return fmt.Errorf("%w: keepalive of %d bytes", ErrUnexpectedFrame, len(p))
		}
		// Only the latest needs an answer.
		h.seen.Received, h.pongFor, h.pong = t, t, true
		c.markDirty(h)
	case frame.TagKeepalive2Ack:
		t, ok := parseTimestamp(p)
		if !ok {
			return fmt.Errorf("%w: keepalive ack of %d bytes", ErrUnexpectedFrame, len(p))
		}
		h.seen.Acked, h.waiting = t, false
		h.acks.set(t)
		h.cfg.Owner.KeepaliveAck(h, t)
	default:
		return fmt.Errorf("%w: %v in the data phase", ErrUnexpectedFrame, f.Tag)
	}
	return nil
}

// acked drops what the peer has received, up to seq. A number above what was
// sent frees nothing that was not sent.
func (h *Handler) acked(seq uint64) {
	for m := h.sent.first; m != nil && m.seq <= seq; m = h.sent.first {
		h.sent.pop()
		h.letGo(m)
	}
}

// message takes one message: sequence rules, acknowledgement, dispatch.
func (h *Handler) message(s *socket, f *frame.Frame, b *buffer, taken throttled) error {
	c := s.core
	hd, err := frame.ParseMessageHeader(f.Seg[0])
	if err != nil {
		h.discard(c, b, taken)
		return err
	}
	if h.dropped.Load() && !mutant.AckUndispatched {
		// It is not dispatched, so it must not be acknowledged either: the peer
		// would take it for delivered.
		h.discard(c, b, taken)
		return nil
	}
	if hd.Seq <= h.inSeq {
		h.stats.Duplicates++
		h.discard(c, b, taken)
		return nil
	}
	if hd.Seq > h.inSeq+1 {
		h.stats.Gaps++
	}
	h.inSeq = hd.Seq
	unpacked := f.Compressed()
	if unpacked {
		// The segments are in memory of their own, and larger than what the
		// throttles were asked for.
		if b != nil {
			c.pool.put(b)
			b = nil
		}
		taken.raise(int64(len(f.Seg[1]) + len(f.Seg[2]) + len(f.Seg[3])))
	}
	if !h.lossy {
		h.owed++
		c.markDirty(h)
		h.acked(hd.AckSeq)
	}
	m := c.message()
	m.Type, m.Priority, m.Version, m.CompatVersion = hd.Type, hd.Priority, hd.Version, hd.CompatVersion
	m.TID, m.DataOff, m.seq = hd.TID, hd.DataOff, hd.Seq
	m.Front, m.Middle, m.Data = f.Seg[1], f.Seg[2], f.Seg[3]
	m.buf, m.leased, m.taken = b, b == nil && !unpacked, taken
	h.stats.MessagesIn++
	h.stats.BytesIn += uint64(m.Size())
	c.stats.MessagesIn++
	if !h.dropped.Load() {
		if c.timing {
			c.lap(&c.stats.Spent.Receive)
		}
		h.cfg.Owner.Dispatch(h, m)
		if c.timing {
			c.lap(&c.stats.Spent.Dispatch)
		}
	}
	if m.leased {
		m.poison()
	}
	if m.refs.Add(-1) < 0 {
		m.taken.giveBack()
		c.recycle(m)
	}
	return nil
}
