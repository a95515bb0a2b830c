package control

import (
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Files that handlers read and write on their core, which never waits: a request goes to
// the kernel with what the network has, and its Done is called on the core that made it.
// Below are the files, their requests, messages whose data is in a buffer of a core, and what
// stops connections while the disk has enough to do.

// What files are made of; see packages loop and uring.
type (
	// DetachedFile is an open file that no core has. Any goroutine may have it, one at a
	// time. Core.AttachFile or its Close ends it.
	DetachedFile = loop.DetachedFile
	// Durability is when a write has ended.
	Durability = loop.Durability
	// DirectMode says whether I/O on a file passes by the page cache.
	DirectMode = uring.DirectMode
	// Alignment is what direct I/O wants, in bytes.
	Alignment = uring.Alignment
	// AlignError says what of a request is not aligned as direct I/O on the file wants it.
	AlignError = loop.AlignError
	// PoisonError says that a sync of a file failed: what was not durable may be lost, and
	// no write and no sync is taken any more. It wraps ErrNotDurable and the errno.
	PoisonError = loop.PoisonError
)

// The kinds of durability, and of I/O.
const (
	// Written: when the file has the bytes, which may be lost when the power goes.
	Written = loop.Written
	// Committed: when a sync that began behind the write has succeeded, which it shares
	// with others (group commit).
	Committed = loop.Committed
	// Through: when the bytes are durable by a sync of their own.
	Through = loop.Through

	// Buffered is I/O through the page cache.
	Buffered = uring.Buffered
	// Direct is I/O past it; a file system that has none refuses to open.
	Direct = uring.Direct
	// TryDirect is I/O past it where that works, else through it.
	TryDirect = uring.TryDirect
)

// Errors of files.
var (
	// ErrFileClosed: the file is closed, or leaves its core.
	ErrFileClosed = loop.ErrFileClosed
	// ErrAlign is wrapped by an AlignError.
	ErrAlign = loop.ErrAlign
	// ErrNotDurable: the write was done, but may be lost, or not.
	ErrNotDurable = loop.ErrNotDurable
	// ErrCoreGone: the core of the file has ended. ErrCoreRemoved: it is being removed, and
	// the context of RemoveCore has ended.
	ErrCoreGone    = loop.ErrStopped
	ErrCoreRemoved = loop.ErrCoreRemoved
	// ErrOpInUse: the last request of the FileOp has not ended.
	ErrOpInUse = loop.ErrOpInUse
)

// FileOptions say how a file is opened and used. The zero value reads what is there,
// through the page cache.
type FileOptions struct {
	Write     bool
	Create    bool       // if it is not there; readable by its owner alone
	Exclusive bool       // with Create: fail if it is there
	Truncate  bool       // empty it
	Direct    DirectMode // past the page cache or not
	// Bounce has a misaligned request on a file with direct I/O go through a buffer of
	// the core, which costs a copy, instead of failing with an AlignError. Writes need
	// an aligned offset and length all the same.
	Bounce bool
	// Ops is how many requests the file has under way before it is Full, and how many of
	// them the kernel has at most, 0: 256.
	Ops int
	// CommitDelay is how long a write that waits for durability waits for others at most
	// before a sync begins that covers them all, 0: not at all. A sync begins sooner
	// when CommitBytes wait, 0: 1 MiB.
	CommitDelay time.Duration
	CommitBytes int64
}

// loop is the same for package loop.
func (o FileOptions) loop() loop.FileOptions {
	if o.Ops <= 0 {
		o.Ops = loop.DefaultFileOps
	}
	return loop.FileOptions{
		FileOptions: uring.FileOptions{Write: o.Write, Create: o.Create, Exclusive: o.Exclusive, Truncate: o.Truncate, Direct: o.Direct},
		Bounce:      o.Bounce, Ops: o.Ops, CommitDelay: o.CommitDelay, CommitBytes: o.CommitBytes,
	}
}

// File is an open file of a core. All of it belongs to that core: its methods may be
// called there only.
//
// A core that RemoveCore takes out of service goes on until its files are closed or have
// left (Detach): close them before, or in a task meanwhile. When the context of RemoveCore
// ends, the core fails, or Shutdown ends it, its files are closed: every request that was
// taken is told how it ended, and later ones are not taken.
type File struct {
	// OnRoom, if not nil, is called on the core when the file was Full and has room again
	// for a quarter of FileOptions.Ops; not behind Close and Detach.
	OnRoom func(f *File)

	f      *loop.File
	core   *Core
	most   int     // FileOptions.Ops
	ops    int     // requests that have not ended
	full   bool    // it was, and OnRoom and held have not been told
	ended  bool    // by Close or Detach
	held   []*Conn // by Hold
	resume []*Conn // scratch memory of room
}

// OpenFile opens a file for Core.AttachFile. It waits for the disk: on a core it fails with
// ErrOnCore, and Core.OpenFile does not wait. Any other goroutine.
func (m *Messenger) OpenFile(path string, opt FileOptions) (*DetachedFile, error) {
	d, err := m.plane.OpenFile(path, opt.loop())
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return d, nil
}

// AttachFile makes d a file of this core. On an error it is closed, such as in a
// task of a core that is gone (ErrCoreGone). On the core.
func (c *Core) AttachFile(d *DetachedFile) (*File, error) {
	f, err := c.c.AttachFile(d)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return c.newFile(f), nil
}

// OpenFile opens a file off the core, and attaches it. opened is called once on the core,
// never within this call, or behind its end (Gone), with the file or an error. On the
// core, Config.CoreStarted included.
func (c *Core) OpenFile(path string, opt FileOptions, opened func(c *Core, f *File, err error)) {
	c.c.OpenFile(path, opt.loop(), func(_ *loop.Core, f *loop.File, err error) {
		if err != nil {
			opened(c, nil, fmt.Errorf("control: %w", err))
			return
		}
		opened(c, c.newFile(f), nil)
	})
}

// Disk lists, renames and removes files, and makes directories durable, where the files of
// the cores are: on the machine's disk, or on that of a simulated host
// (dataplane.Config.Disk). Its calls wait: a core makes them in Offload.
func (m *Messenger) Disk() uring.Disk { return m.plane.Disk() }

func (c *Core) newFile(f *loop.File) *File {
	own := &File{f: f, core: c, most: f.MaxOps()}
	f.OnRoom = func(*loop.File) { own.room() }
	return own
}

// Core is the core that owns the file.
func (f *File) Core() *Core { return f.core }

// Name is the path that the file was opened by.
func (f *File) Name() string { return f.f.Name() }

// Alignment is what requests must be aligned to; zero without direct I/O.
func (f *File) Alignment() Alignment { return f.f.Alignment() }

// Poisoned is the *PoisonError of a file that has lost what was not durable; nil: it has
// not. Reads go on.
func (f *File) Poisoned() error { return f.f.Poisoned() }

// Close ends the file. Requests that have not ended do so with their result or with
// ErrFileClosed, and those that wait for durability with ErrNotDurable; all of them are
// told later, on the core.
func (f *File) Close() {
	f.ended = true
	f.f.Close()
}

// Detach brings the file to rest and takes it off its core: no further request is taken,
// and when those before have ended left is called once on the core, at once or later, with
// the file, for AttachFile of another core, or with nil if it has ended instead.
func (f *File) Detach(left func(c *Core, d *DetachedFile)) {
	f.ended = true
	f.f.Detach(func(c *loop.Core, d *DetachedFile) { left(coreOf(c), d) })
}

// FileOp is one request on a File. It is made by the user, best as a part of what it
// serves, must not be copied, and can be used again from Done on. Only its first use
// allocates. Owner: the core of the file, which looks at it behind Done: give it to another
// core, or to a pool of several, not before Done has returned.
type FileOp struct {
	// Done is called once for each request that was taken, when it has ended, on the core
	// that made it: never within the call that made it. The memory of the request is the
	// caller's again. It must not block, like Dispatcher.Fast. It is set before the first
	// request.
	Done func(c *Core, op *FileOp)
	// N is how many bytes were read or written. Of a write that failed nobody knows.
	N int
	// Err is nil, or why the request failed; io.EOF if the file ended before a read was
	// full. With unix.EBUSY the core has ended with a kernel that has not given the memory
	// back, which must not be used again.
	Err error
	// Data is what ReadBuffer has read, during Done; Message keeps it.
	Data []byte

	op      loop.FileOp
	file    *File
	request *Message // of ReadReply, retained; nil: none
	kept    bool     // Data, by Message, or a new request has taken its place
}

// ReadAt fills p from off on. p is the kernel's until Done. An error means that the
// request was not taken, here as below. On the core.
func (f *File) ReadAt(op *FileOp, p []byte, off int64) error {
	f.prepare(op)
	return f.asked(op, f.f.ReadAt(&op.op, p, off))
}

// ReadAtv fills several pieces, in order, 256 at most. On the core.
func (f *File) ReadAtv(op *FileOp, pieces [][]byte, off int64) error {
	f.prepare(op)
	return f.asked(op, f.f.ReadAtv(&op.op, pieces, off))
}

// ReadBuffer reads n bytes from off on into a buffer of the core, whatever direct I/O is
// aligned to. FileOp.Data is what was read, and FileOp.Message sends it without a copy.
// It is for reads that no peer has asked for; ReadReply is for the others. On the core.
func (f *File) ReadBuffer(op *FileOp, n int, off int64) error {
	f.prepare(op)
	return f.asked(op, f.f.ReadBuffer(&op.op, n, off))
}

// WriteAt writes p from off on. p must not change until Done: a received message is
// retained until then. With direct I/O p is aligned: the data of a received message is from
// Config.AlignFrom on, that of Core.NewMessage from 4 KiB on. On the core.
func (f *File) WriteAt(op *FileOp, p []byte, off int64, how Durability) error {
	f.prepare(op)
	return f.asked(op, f.f.WriteAt(&op.op, p, off, how))
}

// WriteAtv writes several pieces, in order, 256 at most. On the core.
func (f *File) WriteAtv(op *FileOp, pieces [][]byte, off int64, how Durability) error {
	f.prepare(op)
	return f.asked(op, f.f.WriteAtv(&op.op, pieces, off, how))
}

// Sync ends when a sync has succeeded that covers every write whose Done was called
// before. It shares that with others. On the core.
func (f *File) Sync(op *FileOp) error {
	f.prepare(op)
	return f.asked(op, f.f.Sync(&op.op))
}

// Allocate reserves blocks for n bytes from off on, and makes the file as long as that: to
// overwrite them is faster than to grow the file, and does not find the disk full. On the
// core.
func (f *File) Allocate(op *FileOp, off, n int64) error {
	f.prepare(op)
	return f.asked(op, f.f.Allocate(&op.op, off, n))
}

func (f *File) prepare(op *FileOp) {
	op.op.For = nil
	if op.op.Done == nil && op.Done != nil {
		op.op.Done = op.done
	}
}

// asked counts a request that was taken.
func (f *File) asked(op *FileOp, err error) error {
	if err != nil {
		return err
	}
	op.file, op.kept = f, true
	op.N, op.Err, op.Data = 0, nil, nil
	f.ops++
	if f.Full() {
		f.full = true
	}
	return nil
}

// done takes the end of the request.
func (op *FileOp) done(c *loop.Core, ended *loop.FileOp) {
	f := op.file
	f.ops--
	op.N, op.Err, op.Data, op.kept = ended.N, ended.Err, ended.Data, false
	lent := op.Data != nil
	op.endRequest()
	op.Done(coreOf(c), op)
	if lent && !op.kept { // the buffer goes back
		op.Data = nil
	}
	f.room()
}

// lentMessage is a message of a core, with a buffer of it. Once released it goes back to
// the core by itself, from whatever goroutine, and is used again. Owner: who has the
// message, then the core.
type lentMessage struct {
	msg  Message
	core *Core
	buf  *loop.Buffer // nil: none
	loan loop.Loan
	next *lentMessage // in Core.spare
}

// NewMessage makes a message to send, whose Data is n bytes of a buffer of this core, not
// zeroed; from 4 KiB on it begins on a page. Both come back to the core when the message is
// released, and are used again: nothing is allocated. Free is the core's and must not be
// set. It fails only if the kernel refuses a mapping. On the core.
func (c *Core) NewMessage(typ uint16, n int) (*Message, error) {
	if n == 0 {
		return c.lend(typ, nil, nil), nil
	}
	b, err := c.c.Lend(n)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return c.lend(typ, b, b.Bytes()[:n:n]), nil
}

// Message makes a message to send of what ReadReply or ReadBuffer has read, without a copy,
// as Core.NewMessage does: the buffer goes back to its core when the message is released.
// Until then it counts against dataplane.Config.FileBytes, and not against the bounds of the
// sending queue: Send never fails with ErrQueueFull. Who
// knows the crc of Data, as it was stored with it, says so (Message.SetDataCRC). It is called
// in Done, once. On the core.
func (op *FileOp) Message(typ uint16) *Message {
	op.kept = true
	m := op.file.core.lend(typ, op.op.TakeBuffer(), op.Data)
	m.BoundElsewhere(true)
	return m
}

// lend makes a message of what b has, which may be nil.
func (c *Core) lend(typ uint16, b *loop.Buffer, data []byte) *Message {
	l := c.spare
	if l == nil {
		l = &lentMessage{core: c}
		l.loan.Of = l
		l.msg.Free = func(*Message) { l.core.c.Return(&l.loan) }
	} else {
		c.spare, l.next = l.next, nil
	}
	l.buf, l.msg.Type, l.msg.Data = b, typ, data
	return &l.msg
}

// Returned takes the message back, on its core or behind its end.
func (l *lentMessage) Returned(c *loop.Core) {
	if l.buf != nil {
		c.TakeBack(l.buf)
		l.buf = nil
	}
	m := &l.msg
	m.Priority, m.Version, m.CompatVersion, m.TID, m.DataOff = 0, 0, 0, 0, 0
	m.Front, m.Middle, m.Data, m.Context = nil, nil, nil, nil
	m.BoundElsewhere(false)
	m.Changed() // the buffer may come again with other bytes
	l.next, l.core.spare = l.core.spare, l
}

// The memory that waits for a disk is bounded: a file is full when as many requests as
// FileOptions.Ops have not ended, those included whose write waits for a sync. Who has
// more should stop taking what makes them.

// Full says that the file has enough to do: as many requests as FileOptions.Ops are
// under way, or requests wait for room that the core's files share (dataplane.Config.FileOps).
// Further ones are taken all the same. On the core.
func (f *File) Full() bool { return f.busy() >= f.most || f.f.Full() }

// busy is how many requests have not ended, without those that wait for memory or for
// their connection's turn: these are no reason for other connections to wait.
func (f *File) busy() int { return f.ops - f.f.Parked() }

// Hold stops reading from a connection while the file is Full, and says whether it is. For
// Dispatcher.Fast, behind the request that the message made: what came in the same read is
// still dispatched, the rest waits in the peer. The connection is resumed when the file has
// room for a quarter of FileOptions.Ops, or has ended, wherever the connection is by then; a
// Pause of the user's own ends with that. It has no effect on the connection to ourselves.
// On the core.
func (f *File) Hold(conn *Conn) bool {
	if !f.Full() {
		return false
	}
	f.full = true
	if r := conn.reading(); !conn.local && r.waitsFor.CompareAndSwap(nil, f) {
		f.held = append(f.held, conn)
		r.hold(conn)
	}
	return true
}

// room tells those who wait for it that there is room. It is called whenever a request has
// ended, which is also how the requests of a file end that is closed, or whose core fails.
//
// There is room again when a quarter of the bound is free: with one place only, connections
// that have more than the disk takes would stop and go on with every request.
func (f *File) room() {
	if !f.full || f.Full() || f.busy() >= f.most-f.most/4 && !f.ended {
		return
	}
	f.full = false
	f.held, f.resume = f.resume[:0], f.held
	for i, conn := range f.resume {
		f.resume[i] = nil
		r := conn.reading()
		r.waitsFor.Store(nil)
		r.goOn(conn)
	}
	if f.OnRoom != nil && !f.ended {
		f.OnRoom(f)
	}
}
