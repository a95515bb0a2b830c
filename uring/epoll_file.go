package uring

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A reactor does file I/O in three ways. It moves bytes of the page cache at once
// (RWF_NOWAIT). Direct I/O, and syncs of its files, go to Linux AIO (epoll_aio.go), in
// one system call for all requests of a turn. For the rest a bounded number of threads
// waits (epoll_pool.go): reads that miss the cache, writes and syncs of buffered files,
// and requests that AIO refuses. One eventfd reports the ends.

// fileGen marks the events of that eventfd, as generations mark those of sockets.
const fileGen = -1

// closeStep and closeSteps bound the time for which CloseDriver waits for the kernel. The
// kernel cancels some requests at once; the others wait for the network or a device.
const (
	closeStep  = 100 * time.Millisecond
	closeSteps = 100
)

// diskEngine is the part of a reactor for files. Owner: the driver.
type diskEngine struct {
	files []diskFile // by descriptor
	ended waker      // raised when a request has ended
	open  bool       // ended is
	aio   *aio       // nil: none
	tried bool       // whether there is one is known
	pool  filePool
}

// diskFile is the state of one descriptor.
type diskFile struct {
	gen     int32 // the generation of this number, which several files have one after the other
	open    bool
	shut    bool    // to be closed when its last operation has ended
	refused [2]bool // RWF_NOWAIT by reads, and by writes
}

// AdoptFile implements FileDriver.
func (d *epollDriver) AdoptFile(fd int) (File, error) {
	switch {
	case d.stopped:
		return File{}, fmt.Errorf("epoll: adopt file: %w", net.ErrClosed)
	case fd < 0 || fd >= math.MaxInt32:
		return File{}, fmt.Errorf("epoll: adopt file %d: %w", fd, unix.EBADF)
	case fd < len(d.socks) && d.socks[fd].open:
		return File{}, fmt.Errorf("epoll: adopt file %d: %w", fd, unix.EEXIST)
	}
	a, err := alignmentOf(fd)
	if err != nil {
		return File{}, fmt.Errorf("epoll: adopt file %d: %w", fd, err)
	}
	if err := d.openFiles(); err != nil {
		return File{}, err
	}
	k := &d.disk
	if fd >= len(k.files) {
		k.files = append(k.files, make([]diskFile, fd+1-len(k.files))...)
	}
	e := &k.files[fd]
	if e.open || e.shut {
		return File{}, fmt.Errorf("epoll: adopt file %d: %w", fd, unix.EEXIST)
	}
	if a.Direct() {
		d.openAIO()
	}
	k.pool.adopt(fd)
	*e = diskFile{gen: max(1, e.gen+1), open: true}
	return File{sock: Socket{fd: int32(fd) + 1, fixed: e.gen}, align: a}, nil
}

// openFiles opens the eventfd of the ends, for the first file.
func (d *epollDriver) openFiles() error {
	k := &d.disk
	if k.open {
		return nil
	}
	fd, err := k.ended.open()
	if err != nil {
		return fmt.Errorf("epoll: eventfd: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&(1<<32-1), Fd: int32(fd), Pad: fileGen}
	if err := unix.EpollCtl(d.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		k.ended.close()
		k.ended.closed = false // for the next attempt
		return fmt.Errorf("epoll: register eventfd: %w", err)
	}
	d.stats.Syscalls += 2
	k.open = true
	return nil
}

// file is the state behind f, or nil if f takes no request.
func (d *epollDriver) file(f File) *diskFile {
	fd := f.FD()
	if fd < 0 || fd >= len(d.disk.files) || d.stopped {
		return nil
	}
	if e := &d.disk.files[fd]; e.open && e.gen == f.sock.fixed {
		return e
	}
	return nil
}

// startFile takes a slot for a request on f, and begins with it.
func (d *epollDriver) startFile(kind Kind, f File, v *Vec, user uint64, fill func(o *operation)) (Op, error) {
	e := d.file(f)
	if e == nil {
		return 0, fmt.Errorf("epoll: no such file: %w", unix.EBADF)
	}
	if kind.tooLong(v) {
		return 0, fmt.Errorf("epoll: file %d: %w", f.FD(), errTooLong)
	}
	op, ok := d.ops.add(kind, f.sock, user, v)
	if !ok {
		return 0, fmt.Errorf("epoll: too many operations in flight: %w", unix.ENOBUFS)
	}
	d.stats.Submitted++
	o := d.ops.get(op)
	fill(o)
	switch {
	case kind.transfers() && v.Size() == 0:
		d.finish(op, 0)
		return op, nil
	case kind.transfers() && !f.align.Direct() && o.file.flags == 0:
		if final, done := d.moveNow(e, o); done {
			d.finish(op, final)
			return op, nil
		}
	}
	d.goOn(op, o)
	return op, nil
}

// ReadFile implements FileDriver.
func (d *epollDriver) ReadFile(f File, v *Vec, off int64, user uint64) (Op, error) {
	return d.startFile(KindRead, f, v, user, func(o *operation) { o.begin(f, off, 0, false) })
}

// WriteFile implements FileDriver.
func (d *epollDriver) WriteFile(f File, v *Vec, off int64, user uint64, durable bool) (Op, error) {
	return d.startFile(KindWrite, f, v, user, func(o *operation) { o.begin(f, off, 0, durable) })
}

// SyncFile implements FileDriver.
func (d *epollDriver) SyncFile(f File, user uint64) (Op, error) {
	return d.startFile(KindSync, f, nil, user, func(o *operation) { o.begin(f, 0, 0, false) })
}

// AllocateFile implements FileDriver.
func (d *epollDriver) AllocateFile(f File, off, n int64, user uint64) (Op, error) {
	return d.startFile(KindAllocate, f, nil, user, func(o *operation) { o.begin(f, off, n, false) })
}

// errPlainMemory: neither AIO nor threads know memory that is registered.
var errPlainMemory = fmt.Errorf("epoll: register memory: %w", errors.ErrUnsupported)

// RegisterMemory implements FileDriver.
func (d *epollDriver) RegisterMemory(*Memory) error { return errPlainMemory }

// UnregisterMemory implements FileDriver.
func (d *epollDriver) UnregisterMemory(*Memory) {}

// moveNow moves the bytes that are there without a wait. done says that these were all.
func (d *epollDriver) moveNow(e *diskFile, o *operation) (final int32, done bool) {
	refused := &e.refused[o.kind-KindRead]
	if *refused {
		return 0, false
	}
	d.stats.Syscalls++
	res := o.transfer(unix.RWF_NOWAIT, unix.RawSyscall6)
	switch unix.Errno(-res) {
	case unix.EAGAIN:
		return 0, false
	case unix.EOPNOTSUPP, unix.EINVAL, unix.ENOSYS:
		*refused = true // a pool finds out whether it is more than that
		return 0, false
	}
	final, again := o.progress(res)
	return final, !again
}

// goOn gives the rest of o to AIO or to a thread.
func (d *epollDriver) goOn(op Op, o *operation) {
	if d.disk.aio != nil && o.file.grain > 0 && o.step() != stepAllocate {
		d.disk.aio.queue(op, o)
	} else {
		d.disk.pool.give(op, o, &d.disk.ended)
	}
}

// fileAnswer takes an answer to op from AIO or a thread.
func (d *epollDriver) fileAnswer(to *[]Completion, op Op, res int64) {
	o := d.ops.get(op)
	if o == nil {
		d.stats.Stale++
		return
	}
	o.file.job = nil
	if final, again := o.progress(res); again {
		d.goOn(op, o)
	} else {
		*to = append(*to, d.end(op, o, final))
	}
}

// collectFiles takes the completions of requests that have ended.
func (d *epollDriver) collectFiles(to *[]Completion) {
	k := &d.disk
	k.ended.lower()
	if k.aio != nil {
		d.collectAIO(to)
	}
	for j := k.pool.ended(); j != nil; {
		next := j.next
		if j.state.Load() != jobCancelled {
			d.fileAnswer(to, j.op, j.res)
		}
		k.pool.recycle(j)
		j = next
	}
	k.pool.hand(&k.ended)
}

// cancelFile ends op if the kernel has not begun with it.
func (d *epollDriver) cancelFile(op Op, o *operation) {
	o.bits |= opCancel
	j := o.file.job
	if o.bits&opParked != 0 || j != nil && j.state.CompareAndSwap(jobWaiting, jobCancelled) {
		d.finish(op, -int32(unix.ECANCELED))
	}
}

// CloseFile implements FileDriver. Threads know a file by its number, so that this
// stays taken until they have ended.
func (d *epollDriver) CloseFile(f File) {
	e := d.file(f)
	if e == nil {
		return
	}
	fd := f.FD()
	e.open, e.shut = false, true
	for op := d.ops.first(fd); op != 0; {
		next := d.ops.after(op)
		d.cancelFile(op, d.ops.get(op))
		op = next
	}
	d.fileEnded(fd)
}

// fileEnded closes a file that waited for its last operation.
func (d *epollDriver) fileEnded(fd int) {
	if e := &d.disk.files[fd]; e.shut && d.ops.first(fd) == 0 {
		e.shut = false
		d.closeFD(fd)
	}
}

// endFiles waits until no request uses memory, and closes everything.
func (d *epollDriver) endFiles() error {
	k := &d.disk
	if !k.open {
		return nil
	}
	k.open = false
	for fd := range k.files {
		e := &k.files[fd]
		for op := d.ops.first(fd); op != 0 && (e.open || e.shut); {
			next := d.ops.after(op)
			d.cancelFile(op, d.ops.get(op))
			op = next
		}
		if e.open {
			e.open, e.shut = false, true
			d.fileEnded(fd)
		}
	}
	for step := 0; d.filesInFlight() > 0; {
		if step == closeSteps {
			k.pool.stop(false)
			return fmt.Errorf("close epoll: the kernel still holds %d operations on files; their memory is not freed: %w",
				d.filesInFlight(), unix.EBUSY)
		}
		if !d.awaitFiles() {
			step++
		}
		d.collectFiles(&d.pending)
	}
	k.pool.stop(true)
	if k.aio != nil {
		k.aio.close()
	}
	k.ended.close()
	return nil
}

func (d *epollDriver) filesInFlight() (n int) {
	for op, i := d.ops.live(0); op != 0; op, i = d.ops.live(i) {
		if d.ops.get(op).kind.isFile() {
			n++
		}
	}
	return n
}

// awaitFiles waits for an end, for closeStep at most, and says whether there was
// one.
func (d *epollDriver) awaitFiles() bool {
	d.stats.Syscalls += 2
	events := []unix.PollFd{{Fd: int32(d.disk.ended.fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(events, int(closeStep/time.Millisecond)) // an error counts as none
	var count [8]byte
	_, _ = unix.Read(d.disk.ended.fd, count[:]) // so that the next poll waits; EAGAIN: no request has ended
	return n > 0
}
