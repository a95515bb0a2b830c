package control

import (
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Files that handlers read and write on their core, which never waits: a request goes to
// the kernel with what the network has, and its Done is called on the core that made it.
// file_op.go has the requests, file_message.go messages whose data is in a buffer of a
// core, file_room.go what stops connections while the disk has enough to do.

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
