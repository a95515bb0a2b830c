package dataplane

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// discard releases a frame that is not dispatched.
func (h *Handler) discard(c *loop.Core, b *loop.Buffer, taken loop.Charge) {
	taken.Release()
	if b != nil {
		c.TakeBack(b)
	}
	if d := h.cameApart(); d != nil {
		d.drop()
	}
}

// inDataPhase refuses the frames of a handshake, before their payload is gathered.
func inDataPhase(tag frame.Tag) error {
	switch tag {
	case frame.TagMessage, frame.TagAck, frame.TagKeepalive2, frame.TagKeepalive2Ack:
		return nil
	}
	return fmt.Errorf("%w: %v in the data phase", errUnexpectedFrame, tag)
}

// control handles a frame that is not a message, with payload p.
func (h *Handler) control(c *loop.Core, tag frame.Tag, p []byte) error {
	if len(p) < 8 {
		return fmt.Errorf("%w: %v of %d bytes", errUnexpectedFrame, tag, len(p))
	}
	payload := [8]byte(p)
	switch tag {
	case frame.TagAck:
		h.heardAck(c, sequenceOf(payload))
	case frame.TagKeepalive2:
		h.seen.Received, h.pong = timestampOf(payload), true // only the latest needs an answer
		h.mark()
		h.useless(c)
	case frame.TagKeepalive2Ack:
		h.heardKeepaliveAck(c, timestampOf(payload))
	default:
		return inDataPhase(tag)
	}
	return nil
}

// heardAck notes an ack frame of the peer.
func (h *Handler) heardAck(c *loop.Core, seq uint64) {
	h.stats.acksIn++
	c.Counts().AcksIn++
	unacked := h.sent.n
	if h.acked(seq); h.sent.n == unacked {
		h.useless(c)
	}
}

// acked drops the messages up to seq, which the peer has received. A number above the last
// sent one frees no message that was not sent.
func (h *Handler) acked(seq uint64) {
	for m := h.sent.first; m != nil && m.seq <= seq; m = h.sent.first {
		h.givenUp, h.useful = 0, true
		h.sent.pop()
		m.timeAck(h.core.Load())
		h.releaseMessage(m, OutcomeAcknowledged)
	}
}

// message takes one message of the frame f: sequence rules, acknowledgement, dispatch. msgr1
// passes the crcs of f.
func (h *Handler) message(c *loop.Core, hd *frame.MessageHeader, f *frame.Frame, msgr1 bool, b *loop.Buffer, taken loop.Charge) {
	if hd.Seq <= h.inSeq {
		h.stats.duplicates++
		h.discard(c, b, taken)
		return
	}
	if !h.lossy {
		h.acked(hd.AckSeq) // runs the user's code, which may close the connection
	}
	if !h.accept(hd.Seq) {
		h.discard(c, b, taken)
		return
	}
	unpacked := f.Compressed()
	if unpacked {
		// The segments have memory of their own, and are larger than the announced size.
		if b != nil {
			c.TakeBack(b)
			b = nil
		}
		taken.Raise(int64(len(f.Seg[1]) + len(f.Seg[2]) + len(f.Seg[3])))
	}
	m := h.local.lend()
	m.Type, m.Priority, m.Version, m.CompatVersion = hd.Type, hd.Priority, hd.Version, hd.CompatVersion
	m.TID, m.DataOff, m.seq = hd.TID, hd.DataOff, hd.Seq
	m.Front, m.Middle, m.Data = f.Seg[1], f.Seg[2], f.Seg[3]
	m.buf, m.leased, m.charge = b, b == nil && !unpacked, taken
	m.crcs.take(f, msgr1)
	h.deliver(c, m)
}

// accept says whether a message with the number seq, which is new, is dispatched. It
// counts as received then.
func (h *Handler) accept(seq uint64) bool {
	if h.dropped.Load() || h.draining != nil {
		// It is not dispatched, so it must not be acknowledged either: the peer would take it
		// for delivered. From here on it is both or neither.
		return false
	}
	if seq > h.inSeq+1 {
		h.stats.gaps++
	}
	h.inSeq, h.controlUntil = seq, 0
	if !h.lossy {
		h.unacked++
		h.mark()
	}
	return true
}

// deliver gives a received message its data, if that is not in its frame, and dispatches
// it.
func (h *Handler) deliver(c *loop.Core, m *Message) {
	if h.posts == nil {
		h.dispatch(c, m)
		return
	}
	spent := h.place(m)
	h.dispatch(c, m)
	if spent != nil {
		c.TakeBack(spent)
	}
}

// dispatch gives a received message to the owner, and lets go of it.
func (h *Handler) dispatch(c *loop.Core, m *Message) {
	h.useful = true
	h.stats.messagesIn++
	h.stats.bytesIn += uint64(m.Size())
	l := h.local
	if l.counts.MessagesIn++; l.counts.MessagesIn < l.timeNext {
		h.owner.Dispatch(h, m)
	} else {
		h.dispatchTimed(c, m)
	}
	h.holdPaused(h.sock)
	if m.leased {
		m.poison()
	}
	m.dispatched()
}
