package faulty

import (
	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// This file is the requests on files. Their answers are completions, but for what a
// driver refuses at once.

// AdoptFile implements uring.Driver. A descriptor that it refuses is still the caller's.
func (d *driver) AdoptFile(fd int) (uring.File, error) {
	if err := d.call(AdoptFile); err != nil {
		return uring.File{}, err
	}
	return d.Driver.AdoptFile(fd)
}

// endOf has the answer to each kind of request.
var endOf = map[uring.Kind]Request{
	uring.KindRead: ReadFileEnd, uring.KindWrite: WriteFileEnd, uring.KindSync: SyncFileEnd, uring.KindAllocate: AllocateFileEnd,
}

// AskFile implements uring.Driver.
func (d *driver) AskFile(file uring.File, r uring.FileRequest) (uring.Op, error) {
	if err := d.call(AskFile); err != nil {
		return 0, err
	}
	f := d.ask(endOf[r.Kind])
	if f == (Fault{}) {
		return d.Driver.AskFile(file, r)
	}
	if f.Form == Fails {
		op := d.op()
		d.queue = append(d.queue, uring.Completion{Kind: r.Kind, User: r.User, Op: op, Res: -int32(f.Errno)})
		return op, nil
	}
	fl := &flight{fault: f, list: r.Vec}
	if v := r.Vec; v != nil && (f.Form == Part || f.Form == Short) {
		if v.Size() < 2*block { // half of it is no block, which direct I/O may refuse: all is done, and half is told
			fl.tells, fl.size = true, v.Size()/2
		} else if err := fl.halve(v); err != nil {
			return 0, err
		} else {
			r.Vec = fl.part
		}
	}
	op, err := d.Driver.AskFile(file, r)
	if err != nil {
		fl.free()
		return 0, err
	}
	fl.op = op
	d.flying[key{r.Kind, r.User}] = fl
	return op, nil
}

// halve makes a list of the first half of the bytes of v, in whole blocks and in memory
// that is aligned for direct I/O.
func (fl *flight) halve(v *uring.Vec) (err error) {
	n := v.Size() / 2 / block * block
	if fl.part, err = uring.NewVec(1); err != nil {
		return err
	}
	if fl.mem, err = uring.Map(n); err != nil {
		fl.free()
		return err
	}
	p := fl.mem.Bytes()[:n]
	copy(p, v.AppendTo(nil))
	fl.part.Append(p)
	return nil
}

// block is a multiple of what direct I/O wants.
const block = 512

// fileAnswer is the end of a request on a file.
func (d *driver) fileAnswer(fl *flight, c uring.Completion) {
	if fl.part != nil && c.Kind == uring.KindRead && c.Res > 0 {
		fl.list.Fill(fl.mem.Bytes()[:c.Res])
	}
	if fl.tells {
		c.Res = min(c.Res, int32(fl.size))
	}
	switch {
	case fl.fault.Errno != 0:
		c.Res = -int32(fl.fault.Errno)
	case fl.fault.Form == Late:
		d.hold = lateTurns
	}
	fl.free()
	d.queue = append(d.queue, c)
}

// The requests on files.
const (
	AdoptFile       Request = "adopt-file"
	AskFile         Request = "ask-file" // whatever is asked: the driver does not take it
	ReadFileEnd     Request = "read-file-end"
	WriteFileEnd    Request = "write-file-end"
	SyncFileEnd     Request = "sync-file-end"
	AllocateFileEnd Request = "allocate-file-end"
)

// The outcomes of requests on files. Whatever becomes of one, the others end by
// themselves, and the connections of the core go on.
const (
	NotOpened    Outcome = "the file is not opened, with the cause"
	RequestFails Outcome = "the request fails with the cause, and no other one does"
	EndsEarly    Outcome = "the request ends as where a file ends, with io.EOF, or as too short"
	Poisons      Outcome = "what was not durable fails with the cause, and the file takes no more writes; reads go on"
)

// Lists of the manual pages for files; ECANCELED and EAGAIN are of io_uring.
var (
	// fcntl, fstat, statx, epoll_ctl, eventfd, io_uring_register.
	adoptFileErrnos = []unix.Errno{unix.EBADF, unix.EEXIST, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOSPC, unix.EPERM}
	// preadv2.
	readFileErrnos = []unix.Errno{unix.EAGAIN, unix.EBADF, unix.ECANCELED, unix.EFAULT, unix.EINTR, unix.EINVAL, unix.EIO, unix.EISDIR,
		unix.ENOMEM, unix.EOPNOTSUPP, unix.EOVERFLOW, unix.ESTALE}
	// pwritev2.
	writeFileErrnos = []unix.Errno{unix.EAGAIN, unix.EBADF, unix.ECANCELED, unix.EDQUOT, unix.EFAULT, unix.EFBIG, unix.EINTR, unix.EINVAL,
		unix.EIO, unix.ENOMEM, unix.ENOSPC, unix.EOPNOTSUPP, unix.EPERM, unix.EROFS, unix.ESTALE}
	// fdatasync. ECANCELED says that it has not begun.
	syncFileErrnos = []unix.Errno{unix.EBADF, unix.EDQUOT, unix.EINTR, unix.EINVAL, unix.EIO, unix.ENOSPC, unix.EROFS, unix.ESTALE}
	// fallocate.
	allocateFileErrnos = []unix.Errno{unix.EBADF, unix.ECANCELED, unix.EFBIG, unix.EINTR, unix.EINVAL, unix.EIO, unix.ENODEV, unix.ENOSPC,
		unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM}
)

var fileRows = []row{
	{AdoptFile, NotOpened, adoptFileErrnos, nil},
	{AskFile, RequestFails, queueErrnos, nil},
	{ReadFileEnd, RequestFails, readFileErrnos, nil},
	{ReadFileEnd, EndsEarly, nil, []Form{Short}},
	{ReadFileEnd, Unnoticed, nil, []Form{Late}},
	{WriteFileEnd, RequestFails, writeFileErrnos, nil},
	{WriteFileEnd, EndsEarly, nil, []Form{Short}},
	{WriteFileEnd, Unnoticed, nil, []Form{Late}},
	{SyncFileEnd, Poisons, syncFileErrnos, nil},
	{SyncFileEnd, RequestFails, []unix.Errno{unix.ECANCELED}, nil},
	{SyncFileEnd, Unnoticed, nil, []Form{Late}},
	{AllocateFileEnd, RequestFails, allocateFileErrnos, nil},
	{AllocateFileEnd, Unnoticed, nil, []Form{Late}},
}

// FileTable is Table for requests on files. A core without files makes none of them.
func FileTable() []Cell {
	out := cellsOf(fileRows)
	for _, form := range []Form{Part, Whole} {
		for _, e := range writeFileErrnos {
			out = append(out, Cell{WriteFileEnd, Fault{e, form}, RequestFails})
		}
	}
	return append(out, Cell{SyncFileEnd, Fault{unix.EIO, Whole}, Poisons})
}
