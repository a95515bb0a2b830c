package uring

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// defaultWorkers is how many threads of a reactor wait for files at once, at most.
const defaultWorkers = 16

// filePool waits for files in goroutines, which end with the driver. It hands out
// limit jobs at most; the others wait in line.
type filePool struct {
	limit   int
	workers int           // that have been started
	out     int           // jobs that they have
	work    chan *fileJob // to them: room for all that they may have
	line    *fileJob      // first in line
	last    *fileJob
	free    *fileJob
	running sync.WaitGroup

	mu   sync.Mutex // guards done
	done *fileJob   // what has ended, newest first
}

// fileJob is one system call.
type fileJob struct {
	next  *fileJob
	op    Op
	o     operation // a copy: the table may move
	state atomic.Int32
	res   int64 // result, or a negative errno
}

// The states of a job. A thread begins with it, or the driver cancels it.
const (
	jobWaiting int32 = iota
	jobBegun
	jobCancelled
)

// give has a thread do what is left to do of o.
func (p *filePool) give(op Op, o *operation, ended *waker) {
	j := p.free
	if j == nil {
		j = new(fileJob)
	} else {
		p.free = j.next
	}
	j.op, j.o, j.next = op, *o, nil
	j.state.Store(jobWaiting)
	o.file.job = j
	if p.last == nil {
		p.line = j
	} else {
		p.last.next = j
	}
	p.last = j
	p.hand(ended)
}

// hand gives threads what is in line.
func (p *filePool) hand(ended *waker) {
	for p.line != nil && p.out < p.limit {
		j := p.line
		if p.line = j.next; p.line == nil {
			p.last = nil
		}
		if j.state.Load() == jobCancelled {
			p.keep(j)
			continue
		}
		if p.work == nil {
			p.work = make(chan *fileJob, p.limit)
		}
		j.next = nil
		if p.out++; p.out > p.workers {
			p.workers++
			work := p.work // stop may come before the thread begins
			p.running.Go(func() { p.serve(work, ended) })
		}
		p.work <- j
	}
}

// serve is a thread.
func (p *filePool) serve(work <-chan *fileJob, ended *waker) {
	for j := range work {
		if j.state.CompareAndSwap(jobWaiting, jobBegun) {
			j.res = j.o.call()
		}
		p.mu.Lock()
		j.next, p.done = p.done, j
		p.mu.Unlock()
		ended.wake()
	}
}

// ended takes what has ended.
func (p *filePool) ended() *fileJob {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.done
	p.done = nil
	return list
}

// recycle takes back a job that has ended.
func (p *filePool) recycle(j *fileJob) {
	p.out--
	p.keep(j)
}

func (p *filePool) keep(j *fileJob) {
	j.o = operation{}
	j.next, p.free = p.free, j
}

// stop ends the threads, and waits for them if none can be stuck.
func (p *filePool) stop(wait bool) {
	if p.work == nil {
		return
	}
	close(p.work)
	p.work = nil
	if wait {
		p.running.Wait()
	}
}

// call makes the system call that o asks for, and waits for it.
func (o *operation) call() int64 {
	fd := o.sock.FD()
	var err error
	switch o.step() {
	case stepAllocate:
		err = unix.Fallocate(fd, 0, o.file.off, o.file.length)
	case stepSync:
		if o.kind == KindSync && SyncFlags(o.file.flags)&SyncData == 0 {
			err = unix.Fsync(fd)
		} else {
			err = unix.Fdatasync(fd)
		}
	default:
		return o.transfer(o.file.flags, unix.Syscall6)
	}
	if errno, ok := err.(unix.Errno); ok {
		return -int64(errno)
	}
	return 0
}
