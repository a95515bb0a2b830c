package fakedriver

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Request is one request on a file.
type Request struct {
	uring.FileRequest
	File      uring.File
	Cancelled bool

	op uring.Op
}

// Disk keeps files in memory. What Cores open through it their drivers share. It has the
// calls of uring.Disk that a loop makes to open and close a file, and no others.
type Disk struct {
	uring.Disk
	Align  uring.Alignment // of files that are opened with direct I/O
	files  map[string]*content
	opened map[int]*handle
	next   int
}

type content struct{ data []byte }

type handle struct {
	*content
	write bool
	align uring.Alignment
	owner *Driver
}

// NewDisk makes an empty disk.
func NewDisk() *Disk {
	return &Disk{files: map[string]*content{}, opened: map[int]*handle{}, next: firstFD << 1}
}

// Opened is how many descriptors are open.
func (k *Disk) Opened() int { return len(k.opened) }

// Open implements uring.Disk.
func (k *Disk) Open(path string, opt uring.FileOptions) (int, error) {
	c := k.files[path]
	switch {
	case c == nil && !opt.Create:
		return -1, unix.ENOENT
	case c == nil:
		c = new(content)
		k.files[path] = c
	}
	h := &handle{content: c, write: opt.Write}
	if opt.Direct != uring.Buffered {
		h.align = k.Align
	}
	k.next++
	k.opened[k.next] = h
	return k.next, nil
}

// Close implements uring.Disk.
func (k *Disk) Close(fd int) error {
	if k.opened[fd] == nil {
		return unix.EBADF
	}
	delete(k.opened, fd)
	return nil
}

// Stat implements uring.Disk.
func (k *Disk) Stat(fd int) (uring.FileInfo, error) {
	h := k.opened[fd]
	if h == nil {
		return uring.FileInfo{}, unix.EBADF
	}
	return uring.FileInfo{Size: int64(len(h.data)), Alignment: h.align}, nil
}

// AdoptFile implements uring.Driver.
func (d *Driver) AdoptFile(fd int) (uring.File, error) {
	h := d.Disk.opened[fd]
	switch {
	case h == nil:
		return uring.File{}, unix.EBADF
	case h.owner != nil:
		return uring.File{}, unix.EEXIST
	}
	h.owner = d
	return uring.MakeFile(fd, h.align), nil
}

// AskFile implements uring.Driver. It answers the request, unless the test does.
func (d *Driver) AskFile(f uring.File, ask uring.FileRequest) (uring.Op, error) {
	h := d.Disk.opened[f.FD()]
	if h == nil || h.owner != d || d.Closed {
		return 0, unix.EBADF
	}
	if d.FileErr != 0 {
		return 0, d.FileErr
	}
	r := &Request{FileRequest: ask, File: f, op: d.op()}
	d.Files = append(d.Files, r)
	if !d.ParkFiles {
		d.Answer(r)
	}
	return r.op, nil
}

// RegisterMemory implements uring.Driver. With RegisterErr nil it notes the memory, which
// can be unmapped all the same.
func (d *Driver) RegisterMemory(m *uring.Memory) error {
	if d.RegisterErr != nil {
		return d.RegisterErr
	}
	if d.Registered == nil {
		d.Registered = map[*uring.Memory]int{}
	}
	d.Registered[m]++
	return nil
}

// UnregisterMemory implements uring.Driver.
func (d *Driver) UnregisterMemory(m *uring.Memory) { delete(d.Registered, m) }

// Answer does what r asks for, and answers it.
func (d *Driver) Answer(r *Request) { d.AnswerWith(r, d.do(r)) }

// AnswerWith answers r without doing anything.
func (d *Driver) AnswerWith(r *Request, res int32) {
	i := slices.Index(d.Files, r)
	if i < 0 {
		return
	}
	d.Files = slices.Delete(d.Files, i, i+1)
	d.Queue = append(d.Queue, uring.Completion{Kind: r.Kind, User: r.User, Op: r.op, Res: res})
}

func (d *Driver) do(r *Request) int32 {
	h := d.Disk.opened[r.File.FD()]
	switch {
	case h == nil:
		return -int32(unix.EBADF)
	case r.Off < 0, r.Kind == uring.KindAllocate && r.Length <= 0:
		return -int32(unix.EINVAL)
	case r.Kind != uring.KindRead && !h.write:
		return -int32(unix.EBADF)
	}
	switch r.Kind {
	case uring.KindRead:
		return int32(r.Vec.Fill(h.data[min(int(r.Off), len(h.data)):]))
	case uring.KindWrite:
		p := r.Vec.AppendTo(nil)
		h.grow(r.Off + int64(len(p)))
		copy(h.data[r.Off:], p)
		return int32(len(p))
	case uring.KindAllocate:
		h.grow(r.Off + r.Length)
	}
	return 0
}

func (c *content) grow(to int64) {
	c.data = append(c.data, make([]byte, max(0, int(to)-len(c.data)))...)
}

// cancelFile marks a request of a file: the test answers it.
func (d *Driver) cancelFile(op uring.Op) {
	for _, r := range d.Files {
		if r.op == op {
			r.Cancelled = true
		}
	}
}

// CloseFile implements uring.Driver.
func (d *Driver) CloseFile(f uring.File) {
	h := d.Disk.opened[f.FD()]
	if h == nil || h.owner != d {
		return
	}
	for _, r := range d.Files {
		if r.File == f {
			r.Cancelled = true
		}
	}
	delete(d.Disk.opened, f.FD())
}
