package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	// defaultFileOps is the default of FileOptions.Ops.
	defaultFileOps = 256
	// defaultCoreFileOps is the default of Config.FileOps.
	defaultCoreFileOps = 1024
	// defaultCommitBytes is the number of waiting bytes at which a sync begins at once.
	defaultCommitBytes = 1 << 20
)

// ErrFileClosed is the error of requests on a file that is closed, and of waiting requests at
// its end.
var ErrFileClosed = errors.New("loop: file closed")

// FileOptions say how a file is opened and used. The zero value reads an existing file
// through the page cache.
type FileOptions struct {
	Write     bool
	Create    bool             // if it is not there; readable by its owner alone
	Exclusive bool             // with Create: fail if it is there
	Truncate  bool             // empty it
	Direct    uring.DirectMode // past the page cache or not
	// Ops is the number of requests with which the file is Full, and bounds those that the
	// kernel has, 0: 256. The others wait in order.
	Ops int
	// CommitDelay bounds the time for which a write that waits for durability waits for
	// other writes, which share its sync; 0: no wait. Writes that end in the same turn, or
	// while a sync is under way, share one in any case. A sync begins sooner when 1 MiB
	// waits.
	CommitDelay time.Duration
	commitBytes int64 // tests set it
}

// DetachedFile is an open file that no core has yet. Any goroutine may have it, one at a
// time. Core.AttachFile or Close ends it.
type DetachedFile struct {
	name  string
	fd    int
	opt   FileOptions
	info  uring.FileInfo
	disk  uring.Disk
	taken atomic.Bool
}

// OpenFile opens a file for a core. It waits for the disk: on a core it fails with
// ErrOnCore, and Core.OpenFile does not wait. Any other goroutine.
func (p *Plane) OpenFile(path string, opt FileOptions) (*DetachedFile, error) {
	if p.OnCore() {
		return nil, fmt.Errorf("open %s: %w", path, ErrOnCore)
	}
	return openFile(p.cfg.Disk, path, opt)
}

func openFile(disk uring.Disk, path string, opt FileOptions) (*DetachedFile, error) {
	if opt.Ops <= 0 {
		opt.Ops = defaultFileOps
	}
	if opt.commitBytes <= 0 {
		opt.commitBytes = defaultCommitBytes
	}
	fd, err := disk.Open(path, uring.FileOptions{
		Write: opt.Write, Create: opt.Create, Exclusive: opt.Exclusive, Truncate: opt.Truncate, Direct: opt.Direct,
	})
	if err != nil {
		return nil, err
	}
	info, err := disk.Stat(fd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), disk.Close(fd))
	}
	return &DetachedFile{name: path, fd: fd, opt: opt, info: info, disk: disk}, nil
}

// Size is the length of the file when it was opened, in bytes.
func (d *DetachedFile) Size() int64 { return d.info.Size }

// ReadAt reads from off on, and waits for the disk, before a core has the file: for an
// index at the start, for example. It is an io.ReaderAt. With direct I/O p, its length and
// off must be aligned. After AttachFile it fails with ErrFileClosed. Not on a core.
func (d *DetachedFile) ReadAt(p []byte, off int64) (int, error) {
	if d.taken.Load() {
		return 0, fmt.Errorf("%s: %w", d.name, ErrFileClosed)
	}
	n, err := d.disk.ReadAt(d.fd, p, off)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read %s: %w", d.name, err)
	}
	return n, err
}

// Close closes a file that no core has taken.
func (d *DetachedFile) Close() error {
	if d.taken.Swap(true) {
		return fmt.Errorf("%s: %w", d.name, ErrFileClosed)
	}
	return d.disk.Close(d.fd)
}

// File is an open file of a core. The core owns it: call its methods there only.
//
// A core that is being removed goes on until its files are closed: close them before, or in a
// task meanwhile. When the core fails or ends, its files are
// closed: every accepted request gets Done, and later ones are refused.
type File struct {
	core   *Core
	name   string
	sock   uring.File
	align  uring.Alignment
	opt    FileOptions
	user   uint64 // its slot, 0: freed
	ops    int    // requests that have not ended
	busy   int    // of these, requests in the driver
	line   opLine // of these, requests that wait for their turn
	parked int    // of these, requests that wait in the lines of accounts
	lined  bool   // in core.fileLine
	later  bool   // in core.turnOf.line
	waited bool   // requests have waited for room, until none is in line
	full   bool   // it was Full, and inRoom has not got HasRoom since
	stays  bool   // it is a CoreFile
	inRoom []RoomWaiter
	told   []RoomWaiter // scratch memory of tellRoom
	ended  error        // why no request is taken
	wrong  *PoisonError
	commit commit
}

// AttachFile makes d a file of this core. On an error d is closed; ErrStopped says that the
// core is gone. On the core, or after its end.
func (c *Core) AttachFile(d *DetachedFile) (*File, error) {
	c.assertOwner()
	if d.taken.Swap(true) {
		return nil, fmt.Errorf("%s: %w", d.name, ErrFileClosed)
	}
	if c.stopping.Load() || c.closed.Load() {
		_ = d.disk.Close(d.fd) // that the core is gone says enough
		return nil, fmt.Errorf("%s: %w", d.name, ErrStopped)
	}
	s, err := c.drv.AdoptFile(d.fd)
	if err != nil {
		_ = d.disk.Close(d.fd)
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	f := &File{core: c, name: d.name, sock: s, align: d.info.Alignment, opt: d.opt}
	if f.align.Direct() {
		c.pool.files = c.drv
		info := c.drv.Info() // the first such file has shown more of it
		c.plane.info.Store(&info)
	}
	f.commit.file = f
	f.commit.timer.Fire = func(*Core, time.Duration) { f.commit.mark() }
	f.user = c.slot(f)
	c.stats.Files.Open++
	return f, nil
}

// OpenFile opens a file off the core, and attaches it. opened is called once on the core,
// or after its end, with the file or an error. On the core.
func (c *Core) OpenFile(path string, opt FileOptions, opened func(c *Core, f *File, err error)) {
	var d *DetachedFile
	var err error
	c.Offload(func() { d, err = openFile(c.cfg.Disk, path, opt) }, func(c *Core) {
		var f *File
		if err == nil {
			f, err = c.AttachFile(d)
		}
		opened(c, f, err)
	})
}

// Offload runs work, which may wait, on a goroutine of its own, and then calls then on the
// core, or after its end. A core without a thread (Config.Stepped) runs work at once. A core
// that is being removed waits for both. On the core.
func (c *Core) Offload(work func(), then func(c *Core)) {
	c.assertOwner()
	c.expected.Add(1)
	do := func() {
		work()
		c.Post(&Task{Run: func(c *Core) {
			c.expected.Add(-1)
			then(c)
		}})
	}
	if c.cfg.Stepped != nil { // one goroutine does everything, and work is not on the core
		tid := c.tid.Swap(0)
		do()
		c.tid.Store(tid)
		return
	}
	go func() {
		pprof.SetGoroutineLabels(context.Background()) // it is not the core's work in profiles
		do()
	}()
}

// Disk opens and names the files of the plane's cores (Config.Disk).
func (p *Plane) Disk() uring.Disk { return p.cfg.Disk }

// Core is the core that owns the file.
func (f *File) Core() *Core { return f.core }

// Alignment is the alignment that requests must have; zero without direct I/O.
func (f *File) Alignment() uring.Alignment { return f.align }

// Full says that the file has enough to do: as many requests as FileOptions.Ops are under
// way, or requests wait for room that the core's files share (Config.FileOps). Further ones
// are taken all the same. A file that has ended is not full.
func (f *File) Full() bool {
	f.core.assertOwner()
	return f.ended == nil && (f.under() >= f.opt.Ops || f.waited && f.line.first != nil)
}

// under is the number of requests that have not ended, without requests that wait for the
// turn of their account, or for bytes: for these no other request has to wait.
func (f *File) under() int { return f.ops - f.parked }

// RoomWaiter waits for room (File.AwaitRoom).
type RoomWaiter interface {
	// HasRoom is called once on the core: the file was Full and has room again for a
	// quarter of FileOptions.Ops, or it has ended.
	HasRoom(f *File)
}

// AwaitRoom has w.HasRoom called each time that the file was Full and has room again.
func (f *File) AwaitRoom(w RoomWaiter) {
	f.core.assertOwner()
	f.full = f.full || f.Full()
	f.inRoom = append(f.inRoom, w)
}

// tellRoom calls HasRoom of all waiters if there is room. It is called at the end of each
// request, and at that of the file.
//
// There is room again when a quarter of the bound is free: after a single free place,
// connections that overload the disk would stop and go on with every request.
func (f *File) tellRoom() {
	if f.line.first == nil {
		f.waited = false
	}
	if !f.full || f.Full() || f.under() >= f.opt.Ops-f.opt.Ops/4 && f.ended == nil {
		return
	}
	f.full = false
	told := f.inRoom
	f.inRoom, f.told = f.told[:0], nil
	for i, w := range told {
		told[i] = nil
		w.HasRoom(f) // it may end the file, which tells others
	}
	f.told = told[:0]
}

// Poisoned is the *PoisonError of a file after a failed sync; nil: none has failed.
func (f *File) Poisoned() error {
	f.core.assertOwner()
	if f.wrong == nil {
		return nil
	}
	return f.wrong
}

// Close ends the file. Requests that the kernel does not have fail with ErrFileClosed;
// requests in the kernel end with that or with their result. Writes that wait for
// durability fail with ErrNotDurable. All of them get Done later, on the core.
func (f *File) Close() {
	f.core.assertOwner()
	f.end(ErrFileClosed)
}

// end is Close with a reason.
func (f *File) end(err error) {
	if f.ended != nil {
		return
	}
	f.ended = err
	f.failLine(err)
	f.commit.fail(fmt.Errorf("%s: %w: %w", f.name, ErrNotDurable, err))
	f.core.drv.CloseFile(f.sock)
	f.atRest()
	f.tellRoom()
}

// atRest gives the slot back when the file has ended, and the driver has no request of it.
func (f *File) atRest() {
	if f.ended == nil || f.user == 0 || f.busy > 0 || f.commit.syncing {
		return
	}
	c := f.core
	c.timers.stop(&f.commit.timer)
	c.freeEntry(f.user)
	f.user = 0
	c.stats.Files.Open--
	if f.stays {
		c.staying--
	}
}

// CoreFile is a file that every core of a plane has open: the cores of New, and the cores that
// AddCore adds. Make it before the plane, and have Config.Started be, or call, its Open. Each
// core closes it at its end. It does not keep a core that is being removed, but a request on it
// does. It must not be copied.
type CoreFile struct {
	// Path is that of the file of a core, by its number, which one that is added later may have
	// again. All cores may share one.
	Path    func(core int) string
	Options FileOptions

	on Local[coreFile]
}

// coreFile is the state of a CoreFile on one core.
type coreFile struct {
	f      *File
	renews bool // it is being opened anew
}

// Open opens the file on c, which has no work yet that the disk could delay. In
// Config.Started only.
func (s *CoreFile) Open(c *Core) error {
	d, err := openFile(c.cfg.Disk, s.Path(c.id), s.Options)
	if err != nil {
		return err
	}
	f, err := c.AttachFile(d)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	s.keep(c, f)
	return nil
}

func (s *CoreFile) keep(c *Core, f *File) {
	f.stays = true
	c.staying++
	s.on.Of(c).f = f
}

// On is the file of core c, nil before Open. After the end of the core it takes no request. On
// the core, or in a task of a core that is gone.
func (s *CoreFile) On(c *Core) *File { return s.on.Of(c).f }

// Renew closes the file of c and opens it anew off the core, for example after a failed sync
// (PoisonError). Until then On is the old file, which takes no request. opened is called once, on
// the core or after its end, never within this call; it gets an error if the old file stays.
// While a Renew is under way, another does nothing. On the core.
func (s *CoreFile) Renew(c *Core, opened func(c *Core, err error)) {
	own := s.on.Of(c)
	if own.renews {
		return
	}
	own.renews = true
	own.f.Close()
	c.OpenFile(s.Path(c.id), s.Options, func(c *Core, f *File, err error) {
		if own.renews = false; err == nil {
			s.keep(c, f)
		}
		opened(c, err)
	})
}
