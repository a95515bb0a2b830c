//go:build !race

package sim_test

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
)

// Half of the seeds have users that post memory: for messages to come, and for replies.

// posting is memory that a user has posted.
type posting struct {
	control.Posting
	n         *node
	process   int
	c         *control.Conn
	early     bool // before any frame that can have it
	withdrawn bool
	ends      int
	lost      bool
}

// post posts memory for a message that follows m, and is about as large: now, in a dispatcher, or in a while.
func (n *node) post(c *control.Conn, m *control.Message) {
	w := n.w
	p := &posting{n: n, process: n.process, c: c}
	p.TID, p.Buffer, p.Done = m.TID+1+w.more.Uint64N(3), make([]byte, 1+w.more.IntN(len(m.Data)+300)+w.more.IntN(2)*len(m.Data)), p.done
	if p.early = w.more.IntN(2) == 0; p.early {
		p.post()
		return
	}
	w.net.After(time.Duration(w.more.Int64N(int64(time.Second))), func() {
		if p.process == n.process && n.m != nil && !n.ending && !w.quiet {
			p.post()
		}
	})
}

func (p *posting) post() {
	n, w := p.n, p.n.w
	before := 0
	for _, o := range n.posted {
		if o.c == p.c && o.ends == 0 {
			before++
		}
	}
	switch err := p.c.PostBuffer(&p.Posting); {
	case err == nil:
	case errors.Is(err, control.ErrTooManyPostings):
		if w.cover.TooManyPostings++; w.plan.postingsMost == 0 || before < w.plan.postingsMost {
			w.fail("node %d conn %d: one posting too many, with %d of %d", n.id, p.c.ID(), before, w.plan.postingsMost)
		}
		return
	case errors.Is(err, control.ErrTIDInUse) && p.early, errors.Is(err, control.ErrClosed):
		return
	default:
		w.fail("node %d conn %d: a posting: %v", n.id, p.c.ID(), err)
		return
	}
	w.cover.Postings++
	w.woken = true
	w.net.Note("node %d conn %d: posts %d bytes for %d, early %v", n.id, p.c.ID(), len(p.Buffer), p.TID, p.early)
	n.posted = append(n.posted, p)
	patience := []time.Duration{6 * time.Second, 10 * time.Millisecond}[w.more.IntN(2)]
	w.net.After(time.Duration(w.more.Int64N(int64(patience))), func() {
		if p.ends > 0 || p.process != n.process || n.ending {
			return
		}
		p.withdrawn, w.woken = true, true
		if w.more.IntN(2) == 0 {
			p.Withdraw()
			return
		}
		var err error
		w.apart(func() { err = p.TakeBack(context.Background()) }, func() {
			if err != nil || p.ends != 1 {
				w.fail("node %d conn %d: a posting is taken back: %v, and has ended %d times", n.id, p.c.ID(), err, p.ends)
			}
		})
	})
}

// done is the end of a posting.
func (p *posting) done(_ *control.Posting, err error) {
	n, w := p.n, p.n.w
	v := n.watch(p.c)
	w.net.Note("node %d conn %d: posting for %d ends: %v", n.id, p.c.ID(), p.TID, err)
	if p.ends++; p.ends > 1 || !n.ending && (w.turn != n || w.core != p.c.Core().ID()) {
		w.fail("node %d conn %d: a posting ends for the %d. time, or not on its core: %v", n.id, p.c.ID(), p.ends, err)
	}
	switch {
	case err == nil && v.filled == nil:
		v.filled = p // by the message that comes next
		w.cover.Posted++
		return
	case errors.Is(err, context.Canceled) && p.withdrawn:
		w.cover.PostingsBack++
	case errors.Is(err, control.ErrSessionLost):
		w.cover.PostingsLost++
		p.lost = true // an event follows
	case errors.Is(err, control.ErrTIDInUse) && !p.early:
	default:
		w.fail("node %d conn %d: a posting ended with %v", n.id, p.c.ID(), err)
	}
	w.giveBack(p.Buffer)
}

// checkPlace checks that the data of a message is in the memory that was posted for it, and returns
// that, nil for none. A reply has the buffer of its call.
func (n *node) checkPlace(c *control.Conn, m *control.Message, v *watch, of *call) (place []byte) {
	w := n.w
	p := v.filled
	v.filled = nil
	in := func(b []byte) bool { return len(m.Data) > 0 && len(m.Data) <= len(b) && &m.Data[0] == &b[0] }
	switch {
	case p != nil:
		if p.TID != m.TID || !in(p.Buffer) {
			w.fail("node %d conn %d: a posting for %d ended with a message of %d, whose data is not there", n.id, c.ID(), p.TID, m.TID)
		}
		place = p.Buffer
	case of != nil && m.Posted() && in(of.Buffer):
		w.cover.PostedReplies++
		return nil // the end of the call gives it back
	case of != nil && len(m.Data) > 0 && len(m.Data) <= len(of.Buffer):
		w.fail("node %d conn %d: a reply of %d bytes is not in the buffer of its call", n.id, c.ID(), len(m.Data))
	default:
		for _, o := range n.posted {
			if o.c == c && o.early && o.ends == 0 && !o.withdrawn && o.TID == m.TID && len(m.Data) > 0 && len(m.Data) <= len(o.Buffer) {
				w.fail("node %d conn %d: a message of %d is not in the memory that was posted for it", n.id, c.ID(), m.TID)
			}
		}
	}
	if m.Posted() != (place != nil) {
		w.fail("node %d conn %d: posted: %v", n.id, c.ID(), m.Posted())
	}
	return place
}

// checkPostings fails for a posting that has not ended, if all must have, or that was lost
// without a reason.
func (n *node) checkPostings(all bool) {
	for _, p := range n.posted {
		v := n.watch(p.c)
		if p.ends == 0 && (all || p.withdrawn) || p.lost && !n.ending && !v.down && v.resets+v.remotes == 0 {
			n.w.fail("node %d conn %d: the posting for %d has ended %d times, lost: %v", n.id, p.c.ID(), p.TID, p.ends, p.lost)
		}
	}
	for _, b := range n.w.back {
		if bytes.Count(b, simMemory) != len(b) {
			n.w.fail("memory was written that its user had back")
		}
	}
}

// simMemory fills memory that its user has back.
var simMemory = []byte{0xa5}

// giveBack is the return of memory to its user, who writes to it.
func (w *world) giveBack(b []byte) {
	copy(b, bytes.Repeat(simMemory, len(b)))
	w.back = append(w.back, b)
}
