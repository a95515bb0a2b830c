package dataplane

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// A user can post memory for the data of a message with a known transaction id: the data is
// read straight into it, and Message.Data lies there. The rules:
//
//   - A message is matched when all bytes before its data are there. A duplicate matches
//     nothing, nor does a message without data. A message whose data does not fit is
//     received as if nothing was posted, and counted (PostingMisses).
//   - Data in clear is read into its place, unless it is compressed or came whole
//     in one read. All other data is copied there after its check: in mode secure only
//     authenticated data gets into memory of the user.
//   - A posting ends with the dispatch of its message. Until then it is armed: a frame that
//     ends half way, by a fault, a failed check or an abort of the sender, changes only the
//     bytes of the memory, and the message that is sent again finds the posting.
//   - The core reads into memory in calls that end before it does anything else. Nothing
//     is in flight when a posting is withdrawn: the received bytes are copied into memory
//     of ours, where the message goes on.
//   - Posted memory does not belong to the pool. The throttles count its messages like all
//     others.
//
// Without postings a handler compares one pointer with nil for each message.

// Errors of AddPosting.
var (
	// ErrPostingTID: memory is posted for this transaction id already.
	ErrPostingTID = errors.New("dataplane: memory is posted for this transaction id already")
	// errPostingBuffer: a posting has no memory, or no transaction id.
	errPostingBuffer = errors.New("dataplane: a posting needs a transaction id and memory")
)

// Posting is memory for the data of one message. It must not be changed, nor its memory
// touched, while a handler has it. Owner: the core of the handler.
type Posting struct {
	TID    uint64 // of the message, not 0
	Buffer []byte
	User   PostingUser
}

// PostingUser gets the end of a posting.
type PostingUser interface {
	// Used says that a message has come, and its Data is the beginning of the posted memory.
	// The handler no longer has the memory; it dispatches the message next. On the core.
	Used()
}

// postings are the postings of one handler.
type postings struct {
	armed map[uint64]*Posting
	came  apart // of the message that is being handed over
}

// AddPosting arms a posting. The errors are ErrDropped, ErrPostingTID and
// errPostingBuffer. On the core.
func (h *Handler) AddPosting(p *Posting) error {
	switch {
	case p.TID == 0 || len(p.Buffer) == 0:
		return errPostingBuffer
	case h.state == stateDrop:
		return ErrDropped
	case h.posts == nil:
		h.posts = &postings{armed: make(map[uint64]*Posting)}
	case h.posts.armed[p.TID] != nil:
		return ErrPostingTID
	}
	h.posts.armed[p.TID] = p
	return nil
}

// RemovePosting takes a posting back: the handler does not touch its memory any more. It
// returns false if the handler does not have it. On the core that owns the handler, c,
// at any moment.
func (h *Handler) RemovePosting(c *loop.Core, p *Posting) bool {
	if h.posts == nil || h.posts.armed[p.TID] != p {
		return false
	}
	delete(h.posts.armed, p.TID)
	if h.sock == nil {
		c = nil
	}
	r := h.framer.frame()
	r.apart.vacate(c, p, r.apart.filled(r.fill))
	came := &h.posts.came
	came.vacate(c, p, came.size())
	return true
}

// Postings are the armed postings, by their ids. On the core.
func (h *Handler) Postings() []*Posting {
	if h.posts == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(h.posts.armed), func(a, b *Posting) int { return cmp.Compare(a.TID, b.TID) })
}

// awaitsData reports whether memory is posted.
func (h *Handler) awaitsData() bool { return h.posts != nil && len(h.posts.armed) > 0 }

// postingFor returns the posting for a message with size bytes of data, nil if there is none
// with room for them.
func (h *Handler) postingFor(tid uint64, size int) *Posting {
	p := h.posts.armed[tid]
	if p != nil && size > len(p.Buffer) {
		h.stats.postingMisses++
		return nil
	}
	return p
}

// place sets the data of a received message before its dispatch, if the data lies apart from
// the frame, or belongs into posted memory. spent is the buffer of the frame, if it is not
// needed after the dispatch. Only if h.posts is set.
func (h *Handler) place(m *Message) (spent *loop.Buffer) {
	if d := h.posts.came; d.on {
		h.posts.came = apart{}
		old := m.Data
		m.Data, m.dataBuf = d.place, d.buf
		m.crcs[2].moved(old, m.Data)
		if d.posting != nil {
			h.use(d.posting, m)
		}
		return nil
	}
	if len(m.Data) == 0 {
		return nil
	}
	p := h.postingFor(m.TID, len(m.Data))
	if p == nil {
		return nil
	}
	old := m.Data
	m.Data = p.Buffer[:len(old):len(old)]
	copy(m.Data, old)
	m.crcs[2].moved(old, m.Data)
	if m.buf != nil { // the rest in it is usually small
		spent, m.buf, m.leased = m.buf, nil, true
	}
	h.use(p, m)
	return spent
}

// use ends a posting with the message that has it.
func (h *Handler) use(p *Posting, m *Message) {
	delete(h.posts.armed, p.TID)
	m.posted = true
	h.stats.posted++
	p.User.Used()
}

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
