package control

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Peers ask for replies that are much larger than their requests, and need not take them. So
// the memory of a reply that is read from a file is bounded before it is read (ReadReply):
// each connection has its share of dataplane.Config.FileBytes on each core, and more while
// there is enough. A read that finds no room waits, and with it what its peer asks for
// next; the reads of other connections do not.

// ReadReply is ReadBuffer for the reply to request, which conn has brought, from whatever
// core. The read waits until conn may hold n bytes of replies more on this core, in turn with
// those of other connections. The bytes are held until what FileOp.Message makes of them has
// been sent, or on a lossless connection acknowledged. When the session of conn ends before
// the read begins, op fails with ErrSessionLost.
//
// While a read waits a lossy connection is not read from, as with Hold. A lossless one is,
// because acks of the peer free the memory: request is retained until the read has ended,
// so that Config.ConnBytes bounds the requests. Call it while request is dispatched, or
// retained. On the core.
func (f *File) ReadReply(op *FileOp, conn *Conn, request *Message, n int, off int64) error {
	f.prepare(op)
	r := conn.reading()
	a := r.on(conn, f.core)
	op.op.For = &a.Account
	if err := f.asked(op, f.f.ReadBuffer(&op.op, n, off)); err != nil {
		return err
	}
	switch {
	case conn.local:
	case !conn.s.Policy().Lossy:
		request.Retain()
		op.request = request
	case !a.holds && a.Starved():
		a.holds = true
		r.hold(conn)
	}
	f.Hold(conn)
	return nil
}

// endRequest lets go of what ReadReply has retained.
func (op *FileOp) endRequest() {
	if m := op.request; m != nil {
		op.request = nil
		m.Release()
	}
}

// reading is what the reads for a connection hold, and what they stop.
type reading struct {
	waitsFor atomic.Pointer[File]           // whose room resumes the connection (File.Hold); nil: none
	accounts atomic.Pointer[[]*readAccount] // by core; nil where it has read nothing

	mu    sync.Mutex
	stops int // how many reasons there are not to read from the connection; guarded by mu
}

// readAccount is what the reads for a connection hold on one core. Owner: the core.
type readAccount struct {
	loop.Account
	core  *Core
	holds bool // it stops its connection
	task  loop.Task
	lost  atomic.Bool // task is on its way
}

// reading is made when a file is first read, or held, for the connection.
func (c *Conn) reading() *reading {
	if r := c.reads.Load(); r != nil {
		return r
	}
	c.reads.CompareAndSwap(nil, new(reading))
	return c.reads.Load()
}

// on is the account of conn on a core.
func (r *reading) on(conn *Conn, c *Core) *readAccount {
	if list := r.accounts.Load(); list != nil && c.ID() < len(*list) {
		if a := (*list)[c.ID()]; a != nil && a.core == c {
			return a
		}
	}
	a := &readAccount{core: c}
	a.Emptied = func(*loop.Account) {
		if a.holds {
			a.holds = false
			r.goOn(conn)
		}
	}
	a.task.Run = func(*loop.Core) {
		a.lost.Store(false)
		a.Cancel(ErrSessionLost)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*readAccount
	if old := r.accounts.Load(); old != nil {
		list = slices.Clone(*old)
	}
	for len(list) <= c.ID() {
		list = append(list, nil)
	}
	list[c.ID()] = a // one of a core that is gone, whose number this one has, holds nothing
	r.accounts.Store(&list)
	return a
}

// lose ends the reads that have not begun, as nobody waits for the replies any more.
func (r *reading) lose() {
	if r == nil {
		return
	}
	list := r.accounts.Load()
	if list == nil {
		return
	}
	for _, a := range *list {
		if a != nil && !a.lost.Swap(true) {
			a.core.c.Post(&a.task)
		}
	}
}

// hold stops reading from the connection until goOn was called as often.
func (r *reading) hold(conn *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stops++; r.stops == 1 {
		conn.Pause()
	}
}

func (r *reading) goOn(conn *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stops--; r.stops == 0 {
		conn.Resume()
	}
}
