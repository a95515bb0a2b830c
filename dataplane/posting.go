package dataplane

import (
	"cmp"
	"errors"
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
//   - Data in clear is read into its place (apart.go), unless it is compressed or came whole
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
