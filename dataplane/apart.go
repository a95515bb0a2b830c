package dataplane

import (
	"bytes"
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// apart is the data of an unfinished frame in a place of its own, apart from the rest of the
// frame: memory that the user has posted, or a buffer of ours. A frame has one while it may
// still match a posting. The place is settled when all bytes before the data are there.
// Owner: the handler's core.
type apart struct {
	on       bool
	page     bool   // in ours: the data begins on a page
	off      uint16 // in ours: where the data begins in its page
	from, to int    // the data within the rest of the frame

	place   []byte       // as large as the data; nil: not settled
	buf     *loop.Buffer // that has place, if it is a buffer of ours
	posting *Posting     // that has it
}

// size is the size of the data, in bytes.
func (a *apart) size() int { return a.to - a.from }

// filled is the number of its bytes that are there, from the number of bytes after the header.
func (a *apart) filled(rest int) int { return min(max(rest-a.from, 0), a.size()) }

// lendApart sets a buffer for the rest of the frame but for its data, which is data bytes
// from byte from on. at is where the rest begins in the buffer, and off where data in
// memory of ours begins in its page.
func (r *intake) lendApart(s *loop.Socket, at, from, data, off int) bool {
	if !r.lend(s, at, r.size-data) {
		return false
	}
	r.apart = apart{on: true, from: from, to: from + data, off: uint16(off % pageSize), page: r.aligned}
	return true
}

// missing is where the bytes belong that come next, up to the end of a piece of memory.
func (r *intake) missing() []byte {
	a, b := &r.apart, r.target.Bytes()
	switch data := a.size(); {
	case r.fill < a.from:
		return b[r.at+r.fill : r.at+a.from]
	case r.fill < a.to:
		return a.place[r.fill-a.from:]
	default:
		return b[r.at+r.fill-data : r.at+r.size-data]
	}
}

// settle finds the place of the data, once the data comes next. It returns false if there is no
// memory, which is a fault.
func (r *intake) settle(s *loop.Socket) bool {
	a := &r.apart
	if a.place != nil || r.fill < a.from {
		return true
	}
	if seq, tid, ok := r.h.framer.underWayID(); ok && seq > r.h.inSeq {
		if p := r.h.postingFor(tid, a.size()); p != nil {
			a.place, a.posting = p.Buffer[:a.size():a.size()], p
			return true
		}
	}
	if err := a.lend(s.Core()); err != nil {
		s.Fault(fmt.Errorf("data of %d bytes: no memory: %w", a.size(), err))
		return false
	}
	return true
}

// lend gives the data memory of ours.
func (a *apart) lend(c *loop.Core) error {
	need := int(a.off) + a.size()
	if a.page {
		need = max(need, pageSize) // from there on buffers begin on one
	}
	b, err := c.Lend(need)
	if err != nil {
		return err
	}
	a.buf, a.place = b, b.Bytes()[a.off:][:a.size():a.size()]
	return nil
}

// handOver has a posting that is withdrawn from now on find the data of a frame that is
// whole with the message, not with the frame.
func (r *intake) handOver() {
	if r.apart.on {
		r.h.posts.came, r.apart = r.apart, apart{}
	}
}

// cameApart is the data that handOver has left, nil if there is none.
func (h *Handler) cameApart() *apart {
	if h.posts == nil || !h.posts.came.on {
		return nil
	}
	return &h.posts.came
}

// vacate has the data go on in memory of ours, if it lies in that of p; filled bytes of it are
// there. c is nil between two cores.
func (a *apart) vacate(c *loop.Core, p *Posting, filled int) {
	if a.posting != p {
		return
	}
	there := a.place[:filled:filled]
	a.posting = nil
	if c == nil {
		a.place = bytes.Clone(there) // enter goes on with it
		return
	}
	if a.lend(c) != nil {
		a.place = make([]byte, a.size()) // there is no mapping: use the heap
	}
	copy(a.place, there)
}

// drop gives a buffer of ours back. A posting stays armed. On the core that owns the
// handler.
func (a *apart) drop() {
	if a.buf != nil {
		a.buf.LetGo()
	}
	*a = apart{}
}

// leave copies the received part of the data out of memory of its core, as the handler goes to
// another core.
func (a *apart) leave(filled int) {
	if a.buf != nil {
		a.place = bytes.Clone(a.place[:filled:filled])
		a.buf.LetGo()
		a.buf = nil
	}
}

// enter goes on with the copy of leave, or of vacate between the cores.
func (a *apart) enter(c *loop.Core) error {
	if a.place == nil || a.buf != nil || a.posting != nil || len(a.place) == a.size() {
		return nil
	}
	there := a.place
	if err := a.lend(c); err != nil {
		return err
	}
	copy(a.place, there)
	return nil
}
