package loop

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// quietBytes is the largest write with held payload that ends without a completion of
// its own.
const quietBytes = 128 << 10

const (
	// SlabBytes bounds the copied bytes of one write.
	SlabBytes = 64 << 10
	// vecEntries bounds the pieces of one write; a write takes another frame while
	// frameEntries of them are free.
	vecEntries   = 256
	frameEntries = 8
	// flushBytes bounds the gathered payload of one write.
	flushBytes = 1 << 20
)

// Held is the owner of memory to which a write refers. LetGo is called once, on the
// core, when the kernel no longer reads that memory.
type Held interface{ LetGo() }

// Write is one gathered write of a socket, under construction in
// Framer.Gather and then in flight. Owner: the core.
type Write struct {
	// Out holds the copied bytes: append to it, up to Room, never beyond its capacity.
	// On the wire a Refer follows the bytes that were appended before it.
	Out []byte

	core   *Core
	from   int // start of the bytes of Out that are not in vec yet
	vec    *uring.Vec
	slab   *Buffer
	extra  []*Buffer // lent by Extra
	held   []Held    // owners of the memory to which the write refers
	size   int
	began  time.Duration
	copies bool // the kernel copied a write that asked for zero copy
	lent   bool // the write in flight is a zero-copy one
}

// Room is how many bytes Out still takes.
func (w *Write) Room() int {
	w.core.assertOwner()
	return cap(w.Out) - len(w.Out)
}

// Full says that the write takes no further frame: the rest follows in the next write.
func (w *Write) Full() bool {
	w.core.assertOwner()
	return w.vec.Count() > vecEntries-frameEntries || w.vec.Size() > flushBytes
}

// Refer puts p after the bytes that were appended to Out, without a copy: p must not
// change before the write has ended, see Hold. A frame may refer to seven pieces.
func (w *Write) Refer(p []byte) {
	w.core.assertOwner()
	w.cut()
	w.vec.Append(p)
}

// Hold has h.LetGo called when the write no longer refers to the memory of h.
func (w *Write) Hold(h Held) {
	w.core.assertOwner()
	w.held = append(w.held, h)
}

// Extra lends an empty buffer of at least n bytes for one frame for which Out has no
// room: append to it and Refer to it. The buffer goes back with the write.
func (w *Write) Extra(n int) ([]byte, error) {
	w.core.assertOwner()
	b, err := w.core.pool.get(n)
	if err != nil {
		return nil, err
	}
	w.extra = append(w.extra, b)
	return b.b[:0], nil
}

// cut ends a piece of the slab.
func (w *Write) cut() {
	if len(w.Out) > w.from {
		w.vec.Append(w.Out[w.from:])
		w.from = len(w.Out)
	}
}

// begin gives the write its list and its slab.
func (w *Write) begin(c *Core) error {
	vec, err := c.vecs.get()
	if err != nil {
		return err
	}
	slab, err := c.pool.get(SlabBytes)
	if err != nil {
		c.vecs.put(vec)
		return err
	}
	w.core, w.vec, w.slab = c, vec, slab
	w.Out, w.from = slab.b[:0], 0
	return nil
}

// release gives back the memory of the write.
func (w *Write) release(c *Core) {
	if w.vec != nil {
		c.vecs.put(w.vec)
		w.vec = nil
	}
	if w.slab != nil {
		c.pool.put(w.slab)
		w.slab, w.Out = nil, nil
	}
	for i, b := range w.extra {
		c.pool.put(b)
		w.extra[i] = nil
	}
	w.extra = w.extra[:0]
	for i, h := range w.held {
		h.LetGo()
		w.held[i] = nil
	}
	w.held = w.held[:0]
}

// Mark has the loop call Framer.Gather in this turn, or after the write under way.
func (s *Socket) Mark() {
	c := s.core
	c.assertOwner()
	if !s.dirty {
		s.dirty = true
		c.pending = append(c.pending, s)
	}
}

// flushPending starts one write for each socket that has something to send. More than
// that waits for the next turn, so that no socket holds up the rest.
func (c *Core) flushPending() {
	if len(c.pending) == 0 {
		return
	}
	c.flushing, c.pending = c.pending, c.flushing[:0]
	for i, s := range c.flushing {
		c.flushing[i] = nil
		s.dirty = false
		s.gather()
	}
}

// gather has the framer build one write, and starts it.
func (s *Socket) gather() {
	if s.dead || s.framer == nil || s.writing || s.detach != nil || !s.framer.Pending(s) {
		return
	}
	w := &s.tx
	if err := w.begin(s.core); err != nil {
		s.Fault(err)
		return
	}
	s.building = true
	err := s.framer.Gather(s, w)
	s.building = false
	if err != nil {
		s.Fault(fmt.Errorf("send: %w", err))
	}
	if s.dead {
		w.release(s.core)
		return
	}
	s.flush()
}

// flush starts the write, if there is anything in it.
func (s *Socket) flush() {
	w := &s.tx
	w.cut()
	if w.vec.Size() == 0 {
		w.release(s.core)
		switch {
		case s.detach != nil: // since Gather
			s.unwatch()
		case s.eof:
			s.endHalfClosed()
		}
		return
	}
	var flags uring.SendFlags
	if !s.framer.Pending(s) && (len(w.held) == 0 || w.vec.Size() <= quietBytes) {
		// It needs no wake-up. The holders of its memory get LetGo before the core sleeps.
		flags = uring.SendQuiet
	} else if from := s.core.cfg.ZeroCopyFrom; from > 0 && w.vec.Size() >= from && !w.copies {
		flags = uring.SendZeroCopy
	}
	s.core.stats.Writes++
	s.writing = true
	s.send(flags)
}

// send starts the write that is in tx.vec.
func (s *Socket) send(flags uring.SendFlags) {
	s.tx.size, s.tx.lent, s.tx.began = s.tx.vec.Size(), flags&uring.SendZeroCopy != 0, s.core.now
	done, _, err := s.core.drv.Send(s.sock, s.tx.vec, s.user, flags)
	switch {
	case err != nil:
		s.writing = false
		s.tx.release(s.core)
		s.Fault(fmt.Errorf("send: %w", err))
	case done:
		s.sent(int32(s.tx.size), 0)
	default:
		s.ops++
		if flags&uring.SendQuiet != 0 && (len(s.tx.held) > 0 || s.eof) {
			s.core.owed = true
		}
	}
}

// sent ends a write.
func (s *Socket) sent(res int32, flags uring.Flags) {
	size := s.tx.size
	s.writing = false
	s.tx.release(s.core)
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
		s.Fault(fmt.Errorf("send: %w", err))
		return
	}
	s.touched = s.core.now
	s.written += uint64(size)
	s.core.stats.BytesOut += uint64(size)
	if len(s.unsent) > 0 {
		s.writeLink()
		return
	}
	if s.link != nil {
		s.feedLink()
		return
	}
	if s.detach != nil {
		s.unwatch()
		return
	}
	switch {
	case s.framer == nil:
	case s.framer.Pending(s):
		s.Mark()
	case s.eof:
		s.endHalfClosed()
	}
}
