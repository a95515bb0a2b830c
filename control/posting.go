package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Memory for data that is known to come: a Posting for any message, Request.Buffer and
// WithBuffer for a reply. How a message finds its memory is in dataplane/posting.go.

// Posting is memory of the user for the data of one message, for example pages for direct I/O.
// It may be posted again once Done has run, and must not be copied.
//
// The message is the next new one on its connection with the transaction id and with data that
// fits: its Message.Data is then the beginning of Buffer (Message.Posted). Data that does not
// fit counts in HandlerStats.PostingMisses, and leaves the posting as it is. Data in clear is
// read straight from the socket. Encrypted, compressed and small data is copied there after its
// check.
//
// From PostBuffer until Done the memory belongs to the messenger, and its contents are
// undefined. The message, not the memory, counts in the messenger's budgets. Afterwards the
// messenger reads only parts that the user sends.
type Posting struct {
	TID    uint64 // of the message; not 0
	Buffer []byte // not empty
	// Done, if set, is called once for each successful PostBuffer, on the core that owns the
	// connection: with nil when the message has come, which is dispatched next, or with the
	// reason why Buffer was not used: context.Canceled after Withdraw, ErrSessionLost,
	// ErrTIDInUse. It must not block, and may post again.
	Done func(p *Posting, err error)
	// Context is the user's own.
	Context any

	conn  *Conn
	state atomic.Uint64 // counts postings and ends: odd while it is posted
	task  loop.Task     // brings it to its core

	// Owner: the core of conn, from PostBuffer on.
	armed    dataplane.Posting
	pending  bool // the core has not seen it
	canceled bool // and it was withdrawn by then
	waiting  []chan struct{}
}

// PostBuffer posts memory for the data of one message. It stays posted over faults, reconnects
// and moves to other cores, until a message has it, it is withdrawn, or the session is lost or
// handed over. If a message is sent after PostBuffer its answer finds the posting, except on a
// connection that changes cores at that moment: Request.Buffer has no such gap.
//
// Without a later Done it fails with ErrTooManyPostings, ErrInUse if it is posted, ErrConfig,
// ErrClosed, ErrHandedOver, errors.ErrUnsupported on the connection to ourselves, and on the
// core of the connection ErrTIDInUse. Only the first call allocates memory.
func (c *Conn) PostBuffer(p *Posting) error {
	switch {
	case p.TID == 0 || len(p.Buffer) == 0:
		return fmt.Errorf("%w: a posting needs a transaction id and memory", ErrConfig)
	case c.local:
		return fmt.Errorf("%w: postings on the connection to ourselves", errors.ErrUnsupported)
	case c.s.HandedOver():
		return ErrHandedOver
	case c.draining.Load() || c.over.Load():
		return ErrClosed
	}
	s := p.state.Load()
	if s&1 != 0 || !p.state.CompareAndSwap(s, s+1) {
		return ErrInUse
	}
	if !c.postings.enter(c.m.cfg.Receiving.Postings) {
		p.state.Add(1)
		return ErrTooManyPostings
	}
	p.conn, p.pending, p.canceled = c, true, false
	p.armed = dataplane.Posting{TID: p.TID, Buffer: p.Buffer, User: (*postedByUser)(p)}
	if core := ownCore(c.s.Handler()); core != nil {
		if err := p.arm(); err != nil {
			c.postings.leave()
			p.state.Add(1)
			return err
		}
		return nil
	}
	if p.task.Run == nil {
		p.task.Run = p.arrive
	}
	c.s.Handler().Post(&p.task)
	return nil
}

// ownCore is the core that owns a handler, if the caller runs there, else nil.
func ownCore(h *dataplane.Handler) *loop.Core {
	core := h.Core()
	if !core.Current() || h.Core() != core {
		return nil
	}
	return core
}

// arrive arms a posting on the core.
func (p *Posting) arrive(*loop.Core) {
	if p.canceled {
		p.end(context.Canceled)
	} else if err := p.arm(); err != nil {
		p.end(err)
	}
}

func (p *Posting) arm() error {
	p.pending = false
	err := p.conn.s.Handler().AddPosting(&p.armed)
	switch {
	case errors.Is(err, dataplane.ErrPostingTID):
		return fmt.Errorf("%w: %d is posted", ErrTIDInUse, p.armed.TID)
	case err != nil:
		return p.conn.lostError(ErrSessionLost)
	}
	return nil
}

// Withdraw takes the memory back: Done gets context.Canceled, unless a message has come before.
// Partial data is copied to memory of the messenger. It does not wait; on the core that owns
// the connection Done has run when it returns, except if another goroutine has posted it just
// now. Any goroutine, but not at the same time as PostBuffer.
func (p *Posting) Withdraw() {
	s := p.state.Load()
	if s&1 == 0 {
		return
	}
	if core := ownCore(p.conn.s.Handler()); core != nil {
		p.withdraw(core)
		return
	}
	p.conn.s.Handler().Do(func(core *loop.Core) {
		if p.state.Load() == s {
			p.withdraw(core)
		}
	})
}

// TakeBack is Withdraw for a goroutine that waits: when it returns nil, Done has run, and only
// the caller uses the memory, and a message that has it. When ctx ends first it returns that
// error, and the memory is not free; on a core it fails with loop.ErrOnCore. Not at the same
// time as PostBuffer.
func (p *Posting) TakeBack(ctx context.Context) error {
	s := p.state.Load()
	if p.conn == nil {
		return nil // it was never posted
	}
	c := p.conn
	if c.m.plane.OnCore() {
		return loop.ErrOnCore
	}
	done := make(chan struct{})
	c.s.Handler().Do(func(core *loop.Core) {
		if s&1 == 0 || p.state.Load() != s { // it is over: its Done has run on this core
			close(done)
			return
		}
		p.waiting = append(p.waiting, done)
		p.withdraw(core)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// withdraw ends a posting that is not over. On the core.
func (p *Posting) withdraw(core *loop.Core) {
	if p.pending {
		p.canceled = true // it is on its way
		return
	}
	p.conn.s.Handler().RemovePosting(core, &p.armed)
	p.end(context.Canceled)
}

// end gives the memory back to the user. On the core.
func (p *Posting) end(err error) {
	done, waiting := p.Done, p.waiting
	p.waiting = nil
	p.conn.postings.leave()
	p.state.Add(1)
	if done != nil {
		done(p, err)
	}
	for _, w := range waiting {
		close(w)
	}
}

// postedByUser is a posting that is armed.
type postedByUser Posting

// Used implements dataplane.PostingUser.
func (p *postedByUser) Used() { (*Posting)(p).end(nil) }

// postings counts the postings of one connection, which its handler has. Any goroutine.
type postings struct{ n atomic.Int64 }

// enter counts one posting more, unless there are limit; 0: no limit.
func (k *postings) enter(limit int) bool {
	if n := k.n.Add(1); limit > 0 && n > int64(limit) {
		k.n.Add(-1)
		return false
	}
	return true
}

func (k *postings) leave() { k.n.Add(-1) }

// lose ends all postings of c, in the order of their ids: the session is gone. It follows
// calls.lose, which ends the postings of requests. On the core.
func (*postings) lose(c *Conn, goesOn bool) {
	if c.local {
		return
	}
	err := c.lostError(ErrSessionLost)
	if goesOn {
		err = errForgotten
	}
	for _, a := range c.s.Handler().Postings() {
		// Postings that the Done of another has withdrawn, or posted again, are not among them.
		if p, ok := a.User.(*postedByUser); ok && c.s.Handler().RemovePosting(c.s.Handler().Core(), a) {
			(*Posting)(p).end(err)
		}
	}
}

// WithBuffer is Request.Buffer for Call, which returns when only the caller uses p: after the
// end of ctx it still waits for the core.
func WithBuffer(p []byte) CallOption { return func(r *Request) { r.Buffer = p } }
