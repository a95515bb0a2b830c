package uring

import "golang.org/x/sys/unix"

// A reactor does file I/O in three ways. It moves bytes of the page cache at once
// (RWF_NOWAIT). Direct I/O, and syncs of its files, go to Linux AIO (epoll_aio.go), in
// one system call for all requests of a turn. For the rest a bounded number of threads
// waits (epoll_pool.go): reads that miss the cache, writes and syncs of buffered files,
// and requests that AIO refuses. One eventfd reports the ends.

// diskEngine is the part of a reactor for files. Owner: the driver.
type diskEngine struct {
	ended waker // raised when a request has ended; open from the first file on
	aio   *aio  // nil: none
	tried bool  // whether there is one is known
	pool  filePool
}

// openFiles opens the facilities for a file.
func (d *epollDriver) openFiles(fd int, direct bool) error {
	if !d.disk.ended.isOpen {
		if err := d.watch(&d.disk.ended, fileGen); err != nil {
			return err
		}
	}
	if direct {
		d.openAIO()
	}
	d.disk.pool.adopt(fd)
	return nil
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
func (d *epollDriver) fileAnswer(op Op, res int64) {
	o := d.ops.get(op)
	if o == nil {
		d.stats.Stale++
		return
	}
	o.file.job = nil
	if final, again := o.progress(res); again {
		d.goOn(op, o)
	} else {
		d.complete(&d.out, op, o, final)
	}
}

// collectFiles takes the completions of requests that have ended.
func (d *epollDriver) collectFiles() {
	k := &d.disk
	k.ended.lower()
	if k.aio != nil {
		d.collectAIO()
	}
	for j := k.pool.ended(); j != nil; {
		next := j.next
		if j.state.Load() != jobCancelled {
			d.fileAnswer(j.op, j.res)
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
