package uring

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A reactor does file I/O in three ways. It moves bytes of the page cache at once
// (RWF_NOWAIT). Direct I/O, and syncs of its files, go to Linux AIO (epoll_aio.go), in
// one system call for all requests of a turn. For the rest a bounded number of threads
// waits (epoll_pool.go): reads that miss the cache, writes and syncs of buffered files,
// and requests that AIO refuses. One eventfd reports the ends.

// closeStep and closeSteps bound the time for which CloseDriver waits for the kernel. The
// kernel cancels some requests at once; the others wait for the network or a device.
const (
	closeStep  = 100 * time.Millisecond
	closeSteps = 100
)

// diskEngine is the part of a reactor for files. Owner: the driver.
type diskEngine struct {
	ended waker // raised when a request has ended
	open  bool  // ended is
	aio   *aio  // nil: none
	tried bool  // whether there is one is known
	pool  filePool
}

// AdoptFile implements FileDriver.
func (d *epollDriver) AdoptFile(fd int) (File, error) {
	if err := d.adoptable(fd); err != nil {
		return File{}, err
	}
	a, err := alignmentOf(fd)
	if err != nil {
		return File{}, fmt.Errorf("epoll: adopt file %d: %w", fd, err)
	}
	if err := d.openFiles(); err != nil {
		return File{}, err
	}
	if a.Direct() {
		d.openAIO()
	}
	d.disk.pool.adopt(fd)
	f := File{sock: d.named(fd), align: a}
	d.track(f.sock)
	return f, nil
}

// openFiles opens the eventfd of the ends, for the first file.
func (d *epollDriver) openFiles() error {
	if d.disk.open {
		return nil
	}
	err := d.watch(&d.disk.ended, fileGen)
	d.disk.open = err == nil
	return err
}

// beginFile implements engineRest.
func (d *epollDriver) beginFile(op Op, o *operation) error {
	d.stats.Submitted++
	if o.kind.transfers() && o.file.grain == 0 && o.file.flags == 0 {
		if final, done := d.moveNow(o); done {
			d.finish(op, final)
			return nil
		}
	}
	d.goOn(op, o)
	return nil
}

// RegisterMemory implements FileDriver. Neither AIO nor threads know memory that is registered.
func (d *epollDriver) RegisterMemory(*Memory) error { return errNoRegistered }

// UnregisterMemory implements FileDriver.
func (d *epollDriver) UnregisterMemory(*Memory) {}

// moveNow moves the bytes that are there without a wait. done says that these were all.
func (d *epollDriver) moveNow(o *operation) (final int32, done bool) {
	refused := &d.states[o.sock.FD()].refused[o.kind-KindRead]
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

// endFiles waits until no request on a file uses memory.
func (d *epollDriver) endFiles() error {
	k := &d.disk
	if !k.open {
		return nil
	}
	k.open = false
	for op, i := d.ops.live(0); op != 0; op, i = d.ops.live(i) {
		if o := d.ops.get(op); o.kind.isFile() {
			d.cancelFile(op, o)
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
