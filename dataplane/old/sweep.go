package dataplane

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	// quietBytes is the size up to which a write that refers to payload ends
	// without a completion of its own; owedFor bounds how long its memory is
	// held if nothing else wakes the core.
	quietBytes = 128 << 10
	owedFor    = time.Millisecond
)

// sweepBytes bounds the gathered payload of one write.
const sweepBytes = 1 << 20

// transmit is the write in flight of one socket. Owner: the core.
type transmit struct {
	vec    *uring.Vec
	slab   *buffer
	extra  []*buffer  // frames too large for the slab, sealed in buffers of their own
	held   []*Message // messages whose payload the write refers to
	size   int
	owed   bool // quiet, though somebody waits for the memory
	copies bool // the kernel copied what was meant as zero copy
	lent   bool // the write in flight is one without a copy
}

// markDirty has h swept in this turn.
func (c *Core) markDirty(h *Handler) {
	c.assertOwner()
	if !h.inDirty {
		h.inDirty = true
		c.dirty = append(c.dirty, h)
	}
}

// forget takes h out of the list of those to be swept.
func (c *Core) forget(h *Handler) {
	if !h.inDirty {
		return
	}
	h.inDirty = false
	for i, d := range c.dirty {
		if d == h {
			c.dirty = append(c.dirty[:i], c.dirty[i+1:]...)
			return
		}
	}
}

// sweepDirty writes what the connections have to send, one write each. Those
// that have more wait for the next turn, so that one cannot hold up the rest.
func (c *Core) sweepDirty() {
	if len(c.dirty) == 0 {
		return
	}
	c.sweeping, c.dirty = c.dirty, c.sweeping[:0]
	for i, h := range c.sweeping {
		c.sweeping[i] = nil
		h.inDirty = false
		h.sweep(c)
	}
}

// sweep builds one gathered write of everything that h has to send, in the
// order of msgr2.md 10.4: KEEPALIVE2, KEEPALIVE2_ACK, ACK unless a message
// carries it, then messages.
func (h *Handler) sweep(c *Core) {
	s := h.sock
	if s == nil || h.state != StateOpen || s.writing || h.holdOut || !h.pendingOut() {
		return
	}
	b := sweep{h: h, c: c, s: s}
	if err := b.begin(); err != nil {
		s.fault(err)
		return
	}
	err := b.control()
	if err == nil {
		err = b.messages()
	}
	if err != nil {
		s.fault(fmt.Errorf("send: %w", err))
		if !s.writing {
			s.releaseWrite()
		}
		return
	}
	b.flush()
}

// sweep is one write under construction.
type sweep struct {
	h    *Handler
	c    *Core
	s    *socket
	out  []byte // slab, filled from the front; never grows beyond its buffer
	from int    // start of what is not in the vec yet
}

func (b *sweep) begin() error {
	vec, err := b.c.vec()
	if err != nil {
		return err
	}
	slab, err := b.c.pool.get(slabBytes)
	if err != nil {
		b.c.putVec(vec)
		return err
	}
	b.s.tx.vec, b.s.tx.slab = vec, slab
	b.out = slab.b[:0]
	return nil
}

// room is what the slab still takes.
func (b *sweep) room() int { return cap(b.out) - len(b.out) }

// control appends the frames that stand before messages.
func (b *sweep) control() error {
	h := b.h
	if h.ping {
		if pass, err := b.mayWrite(frame.TagKeepalive2, nil); !pass {
			return err
		}
		h.ping = false
		h.seen.Sent = b.c.wall()
		if err := b.frame(frame.TagKeepalive2, h.seen.Sent.payload()); err != nil {
			return err
		}
	}
	if h.pong {
		if pass, err := b.mayWrite(frame.TagKeepalive2Ack, nil); !pass {
			return err
		}
		h.pong = false
		if err := b.frame(frame.TagKeepalive2Ack, h.pongFor.payload()); err != nil {
			return err
		}
	}
	if h.owed > 0 {
		if h.queue.n == 0 && !h.lossy {
			if pass, err := b.mayWrite(frame.TagAck, nil); !pass {
				return err
			}
			h.owed = 0
			h.stats.AcksOut++
			return b.frame(frame.TagAck, seqPayload(h.ackSeq()))
		}
		h.owed = 0
		delete(h.shown, shownFrame{tag: frame.TagAck}) // held, and carried by a message now
	}
	return nil
}

// frame appends a control frame.
func (b *sweep) frame(tag frame.Tag, payload [8]byte) error {
	// The scratch lives in the core so that it does not escape per frame.
	b.c.scratch = payload
	out, err := b.h.enc.AppendFrame(b.out, tag, b.c.scratch[:])
	b.out = out
	return err
}

// messages appends queued messages until the queue is empty or the write is
// full; the rest follows in the next one.
func (b *sweep) messages() error {
	h, tx := b.h, &b.s.tx
	for {
		m := h.queue.peek()
		if m == nil || h.holdOut || tx.vec.Count() > vecEntries-8 || tx.vec.Size() > sweepBytes {
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
		hd.Put(&b.c.header)
		fits, err := b.message(m)
		if err != nil {
			return err
		}
		if !fits {
			h.showed(frame.TagMessage, m)
			return nil
		}
		h.outSeq++
		m.seq = h.outSeq
		h.queue.pop()
		h.stats.MessagesOut++
		h.stats.BytesOut += uint64(m.Size())
		b.c.stats.MessagesOut++
		if h.lossy {
			h.letGo(m)
		} else {
			h.sent.push(m)
		}
	}
}

// ackSeq is the number up to which the peer's messages have arrived.
func (h *Handler) ackSeq() uint64 {
	if mutant.AckTooHigh {
		return h.inSeq + 1
	}
	return h.inSeq
}

// messageComplete is the flag byte that userland peers send.
const messageComplete = 3

// message appends one message frame, or says that it has no room left.
func (b *sweep) message(m *Message) (fits bool, err error) {
	enc, tx := b.h.enc, &b.s.tx
	lens := [4]int{frame.MessageHeaderSize, len(m.Front), len(m.Middle), len(m.Data)}
	if !enc.Gathers() {
		return b.sealed(m, enc.FrameSize(lens[0], lens[1], lens[2], lens[3]))
	}
	copied := 0
	for _, n := range lens[1:] {
		if n < b.c.cfg.CopyBelow {
			copied += n
		}
	}
	if b.room() < frameOverhead+copied {
		return false, nil
	}
	if copied == m.Size() {
		b.out, err = enc.AppendFrame(b.out, frame.TagMessage, b.c.header[:], m.Front, m.Middle, m.Data)
		return true, err
	}
	b.out = enc.AppendOpen(b.out, frame.TagMessage, b.c.header[:], lens)
	held := false
	for _, seg := range [3][]byte{m.Front, m.Middle, m.Data} {
		if len(seg) < b.c.cfg.CopyBelow {
			b.out = append(b.out, seg...)
			continue
		}
		b.cut()
		tx.vec.Append(seg)
		held = true
	}
	if held {
		// The peer's ack may come before the kernel's answer.
		m.refs.Add(1)
		tx.held = append(tx.held, m)
	}
	b.out = enc.AppendClose(b.out, b.c.header[:], [4][]byte{nil, m.Front, m.Middle, m.Data})
	return true, nil
}

// frameOverhead is more than what a gathered message frame takes besides its
// payload: preamble 32, header 41, crc 4, epilogue 17.
const frameOverhead = 128

// sealed appends a frame that is made as a whole: encrypted, straight from where
// its payload lies if that is large, or compressed.
func (b *sweep) sealed(m *Message, size int) (bool, error) {
	tx := &b.s.tx
	if size <= b.room() {
		out, err := b.h.enc.AppendFrame(b.out, frame.TagMessage, b.c.header[:], m.Front, m.Middle, m.Data)
		b.out = out
		return true, err
	}
	if size <= slabBytes/2 {
		return false, nil // it has room in the next write
	}
	buf, err := b.c.pool.get(size)
	if err != nil {
		return false, err
	}
	tx.extra = append(tx.extra, buf)
	out, err := b.h.enc.AppendFrame(buf.b[:0], frame.TagMessage, b.c.header[:], m.Front, m.Middle, m.Data)
	if err != nil {
		return false, err
	}
	b.cut()
	tx.vec.Append(out)
	return true, nil
}

// cut ends a piece of the slab.
func (b *sweep) cut() {
	if len(b.out) > b.from {
		b.s.tx.vec.Append(b.out[b.from:])
		b.from = len(b.out)
	}
}

func (b *sweep) flush() {
	b.cut()
	tx := &b.s.tx
	if tx.vec.Size() == 0 {
		b.s.releaseWrite()
		return
	}
	var flags uring.SendFlags
	if !b.h.pendingOut() && (len(tx.held) == 0 || tx.vec.Size() <= quietBytes) {
		// Nobody waits for its end, or not so urgently that it is worth a
		// wake-up of its own.
		flags = uring.SendQuiet
		tx.owed = len(tx.held) > 0
	} else if from := b.c.cfg.ZeroCopyFrom; from > 0 && tx.vec.Size() >= from && !tx.copies {
		flags = uring.SendZeroCopy
	}
	b.c.stats.Writes++
	b.s.writing = true
	b.s.send(flags)
}

// send starts the write that is in tx.vec.
func (s *socket) send(flags uring.SendFlags) {
	s.tx.size, s.tx.lent = s.tx.vec.Size(), flags&uring.SendZeroCopy != 0
	done, _, err := s.core.drv.Send(s.sock, s.tx.vec, s.user, flags)
	switch {
	case err != nil:
		s.writing = false
		s.releaseWrite()
		s.fault(fmt.Errorf("send: %w", err))
	case done:
		s.sent(int32(s.tx.size), 0, true)
	default:
		s.ops++
		if s.tx.owed {
			s.core.owing++
		}
	}
}

// sent ends a write; done says that it ended at once.
func (s *socket) sent(res int32, flags uring.Flags, done bool) {
	size := s.tx.size
	s.writing = false
	if s.tx.owed && !done {
		s.core.owing--
	}
	s.tx.owed = false
	s.releaseWrite()
	if flags&uring.Copied != 0 {
		s.tx.copies = true
	}
	if s.dead {
		return
	}
	if res < 0 || int(res) != size {
		err := error(unix.EPIPE)
		if res < 0 {
			err = unix.Errno(-res)
		}
		s.fault(fmt.Errorf("send: %w", err))
		return
	}
	s.touched = s.core.now
	s.core.stats.BytesOut += uint64(size)
	if s.link != nil {
		s.link.answer(nil)
		return
	}
	if s.going != nil {
		s.unwatch()
		return
	}
	if h := s.handler; h != nil && h.pendingOut() {
		s.core.markDirty(h)
	}
}

// releaseWrite gives back what the write used.
func (s *socket) releaseWrite() {
	c, tx := s.core, &s.tx
	if tx.vec != nil {
		c.putVec(tx.vec)
		tx.vec = nil
	}
	if tx.slab != nil {
		c.pool.put(tx.slab)
		tx.slab = nil
	}
	for i, b := range tx.extra {
		c.pool.put(b)
		tx.extra[i] = nil
	}
	tx.extra = tx.extra[:0]
	for i, m := range tx.held {
		m.Release()
		tx.held[i] = nil
	}
	tx.held = tx.held[:0]
}
