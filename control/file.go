package control

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Handlers read and write the files of their core (loop.File) without waiting. This file joins
// files with messages and connections: messages whose data is in a buffer of a core, reads for
// replies, and connections that wait for the disk.

// OpenFile opens a file for loop.Core.AttachFile. It waits for the disk: on a core it fails
// with loop.ErrOnCore (loop.Core.OpenFile does not wait). A loop.CoreFile is open on each core.
func (m *Messenger) OpenFile(path string, opt loop.FileOptions) (*loop.DetachedFile, error) {
	d, err := m.plane.OpenFile(path, opt)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return d, nil
}

// Disk lists, renames and removes files, and makes directories durable: on the machine's disk,
// or on that of a simulated host (loop.Config.Disk). Its calls wait: a core makes them in
// Offload.
func (m *Messenger) Disk() uring.Disk { return m.plane.Disk() }

// lentMessage is a message of a core, with a buffer of it. Once released, on any goroutine, it
// goes back to the core by itself, and is used again. Owner: the holder of the message, then
// the core.
type lentMessage struct {
	msg  Message
	core *loop.Core
	home *spareMessages
	buf  *loop.Buffer // nil: none
	loan loop.Loan
	next *lentMessage // in spareMessages
}

// spareMessages are the released ones of a core. Owner: the core.
type spareMessages struct{ first *lentMessage }

var sparesOf loop.Local[spareMessages]

// LendMessage makes a message to send, whose Data is n bytes of a buffer of core c, not zeroed;
// from 4 KiB on it begins on a page. Both go back to the core when the message is released, and
// are used again. Free must not be set. It fails only if the kernel refuses a mapping. On the
// core.
func LendMessage(c *loop.Core, typ uint16, n int) (*Message, error) {
	if n == 0 {
		return lend(c, typ, nil, nil), nil
	}
	b, err := c.Lend(n)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return lend(c, typ, b, b.Bytes()[:n:n]), nil
}

// FileMessage makes a message to send of the result of ReadReply or loop.File.ReadBuffer,
// without a copy: the buffer goes back to its core when the message is released. Until then it
// counts against loop.Config.FileBytes, and not against the bounds of the sending queue.
// Message.SetDataCRC saves the crc of data that was stored with it. Call it in FileOp.Done,
// once. On the core.
func FileMessage(op *loop.FileOp, typ uint16) *Message {
	m := lend(op.File().Core(), typ, op.TakeBuffer(), op.Data)
	m.BoundElsewhere(true)
	return m
}

// lend makes a message of b, which may be nil.
func lend(c *loop.Core, typ uint16, b *loop.Buffer, data []byte) *Message {
	home := sparesOf.Of(c)
	l := home.first
	if l == nil || c.Gone() { // then messages come back on other goroutines
		l = &lentMessage{core: c, home: home}
		l.loan.Of = l
		l.msg.Free = func(*Message) { l.core.Return(&l.loan) }
	} else {
		home.first, l.next = l.next, nil
	}
	l.buf, l.msg.Type, l.msg.Data = b, typ, data
	return &l.msg
}

// Returned takes the message back, on its core or after its end.
func (l *lentMessage) Returned(c *loop.Core) {
	if l.buf != nil {
		c.TakeBack(l.buf)
		l.buf = nil
	}
	if c.Gone() {
		return
	}
	m := &l.msg
	m.Priority, m.Version, m.CompatVersion, m.TID, m.DataOff = 0, 0, 0, 0, 0
	m.Front, m.Middle, m.Data, m.Context = nil, nil, nil, nil
	m.BoundElsewhere(false)
	m.Changed() // the buffer may come again with other bytes
	l.next, l.home.first = l.home.first, l
}

// Hold stops reading from the connection while f is Full, and reports whether it is. It is for
// Dispatcher.Fast, after a request to f: messages of the same read are still dispatched, the
// rest waits in the peer. The connection resumes when f has room for a quarter of
// loop.FileOptions.Ops, or has ended; a Pause of the user ends with that. It has no effect on
// the connection to ourselves. On the core of f.
func (c *Conn) Hold(f *loop.File) bool {
	if !f.Full() {
		return false
	}
	if r := c.reading(); !c.local && r.waits.CompareAndSwap(false, true) {
		f.AwaitRoom(r)
		r.hold()
	}
	return true
}

// Peers may ask for replies that are much larger than their requests, and not read them. So the
// memory of a reply from a file is bounded before it is read (ReadReply): each connection has
// its share of loop.Config.FileBytes on each core, and more while there is enough. A read
// without room waits, and with it the next requests of its peer; reads of other connections go
// on.

// ReadReply is f.ReadBuffer for the reply to request, a message of this connection. The read
// waits until the connection may hold n more bytes of replies on this core, in turn with other
// connections. It holds them until the message of FileMessage has been sent, or on a lossless
// connection acknowledged. When the session ends before the read begins, op fails with
// ErrSessionLost. A hand-over waits for it if the reply is one of Later: reads that wait begin
// if loop.Config.FileBytes has room; others fail with ErrHandedOver, also if it fails in the end.
//
// While a read waits a lossy connection is not read from, as with Hold. A lossless one is,
// because acks free the memory: request is retained until the read has ended, so that
// Config.Receiving.ConnBytes bounds the requests. Call it while request is dispatched, or
// retained. It uses op.For and op.Keeps. On the core of f.
func (c *Conn) ReadReply(f *loop.File, op *loop.FileOp, request *Message, n int, off int64) error {
	r := c.reading()
	a := r.on(f.Core())
	op.For = &a.Account
	err := f.ReadBuffer(op, n, off)
	if op.For = nil; err != nil {
		return err
	}
	switch {
	case c.local:
	case !c.s.Policy().Lossy:
		request.Retain()
		op.Keeps = request
	case !a.holds && a.Starved():
		a.holds = true
		r.hold()
	}
	c.Hold(f)
	return nil
}

// reading are the reads for a connection, and their stops of it.
type reading struct {
	conn     *Conn
	waits    atomic.Bool                    // for the room of a file (Conn.Hold)
	accounts atomic.Pointer[[]*readAccount] // by core; nil where it has read nothing
	still    atomic.Bool                    // the session stands still, as the last lose has said

	mu    sync.Mutex
	stops int // number of reasons not to read from the connection; guarded by mu
}

// readAccount are the bytes of reads for a connection on one core. Owner: the core.
type readAccount struct {
	loop.Account
	core  *loop.Core
	holds bool // it stops its connection
	task  loop.Task
	ends  atomic.Bool // task, which ends the wait of its reads, is on its way
}

// reading is made at the first read, or Hold, for the connection.
func (c *Conn) reading() *reading {
	if r := c.reads.Load(); r != nil {
		return r
	}
	r := &reading{conn: c}
	r.accounts.Store(new([]*readAccount))
	c.reads.CompareAndSwap(nil, r)
	return c.reads.Load()
}

// on is the account of the connection on a core.
func (r *reading) on(c *loop.Core) *readAccount {
	if list := *r.accounts.Load(); c.ID() < len(list) {
		if a := list[c.ID()]; a != nil && a.core == c {
			return a
		}
	}
	a := &readAccount{core: c}
	a.Emptied = func(*loop.Account) {
		if a.holds {
			a.holds = false
			r.goOn()
		}
	}
	a.Wanted = r.conn.s.Handler().Wanted
	a.task.Run = func(*loop.Core) {
		a.ends.Store(false)
		if r.still.Load() {
			a.Cancel(ErrHandedOver, true)
		} else {
			a.Cancel(ErrSessionLost, false)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(*r.accounts.Load())
	for len(list) <= c.ID() {
		list = append(list, nil)
	}
	list[c.ID()] = a // the account of a core that is gone, with the same number, is empty
	r.accounts.Store(&list)
	return a
}

// lose ends the reads that have not begun, as the session has ended. If it stands still for a
// hand-over, those for which there is memory begin.
func (r *reading) lose(still bool) {
	if r == nil {
		return
	}
	r.still.Store(still)
	for _, a := range *r.accounts.Load() {
		if a != nil && !a.ends.Swap(true) {
			a.core.Post(&a.task)
		}
	}
}

// hold stops reading from the connection until as many calls of goOn.
func (r *reading) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stops++; r.stops == 1 {
		r.conn.Pause()
	}
}

func (r *reading) goOn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stops--; r.stops == 0 {
		r.conn.Resume()
	}
}

// HasRoom resumes the connection: the file has room.
func (r *reading) HasRoom(*loop.File) {
	r.waits.Store(false)
	r.goOn()
}
