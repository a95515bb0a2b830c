package uring

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// defaultWorkers bounds the threads of a reactor that wait for files at once. Each takes one of
// GOMAXPROCS for some time.
const defaultWorkers = 16

// maxRun bounds the writes that a thread does in a run.
const maxRun = 32

// filePool waits for files in goroutines, which end with the driver. At most limit of them
// work at a time; further requests wait in line.
//
// Writes to one file through the page cache exclude each other in the kernel: threads that
// write at the same time wait for each other, and spin meanwhile. So one thread does a run of
// them, one after the other; writes that come meanwhile make the next run.
type filePool struct {
	limit   int
	workers int           // that have been started
	out     int           // of these, the number with work
	work    chan *fileJob // to them, runs: room for as many as they may have
	line    jobLine       // of runs each the first job
	writes  []fileWrites  // by descriptor
	free    *fileJob
	running sync.WaitGroup

	mu   sync.Mutex // guards done
	done *fileJob   // jobs that have ended
}

// fileJob is one system call.
type fileJob struct {
	next  *fileJob // in its line, its run, or the list of ended jobs
	op    Op
	o     operation // a copy: the table may move
	state atomic.Int32
	ends  bool  // its thread has no further job after it
	res   int64 // result, or a negative errno
}

// fileWrites are the writes to a file that exclude each other.
type fileWrites struct {
	waiting jobLine
	run     bool // a thread has a run of them, or the first of one is in line
}

// jobLine is a list of jobs, in order.
type jobLine struct{ first, last *fileJob }

func (l *jobLine) push(j *fileJob) {
	if j.next = nil; l.last == nil {
		l.first = j
	} else {
		l.last.next = j
	}
	l.last = j
}

// pop takes the first job, nil: there is none.
func (l *jobLine) pop() *fileJob {
	j := l.first
	if j == nil {
		return nil
	}
	if l.first = j.next; l.first == nil {
		l.last = nil
	}
	j.next = nil
	return j
}

// The states of a job. A thread begins with it, or the driver cancels it.
const (
	jobWaiting int32 = iota
	jobBegun
	jobCancelled
)

// give has a thread do the rest of o.
func (p *filePool) give(op Op, o *operation, ended *waker) {
	j := p.free
	if j == nil {
		j = new(fileJob)
	} else {
		p.free = j.next
	}
	j.op, j.o, j.ends = op, *o, false
	j.state.Store(jobWaiting)
	o.file.job = j
	if w := p.writesOf(j); w == nil {
		p.line.push(j)
	} else if w.waiting.push(j); !w.run {
		p.nextRun(w)
	}
	p.hand(ended)
}

// writesOf returns the writes that j excludes; nil: it excludes none. A write that waits for
// its durability excludes none meanwhile.
func (p *filePool) writesOf(j *fileJob) *fileWrites {
	if j.o.kind != KindWrite || j.o.step() != stepTransfer || j.o.file.grain > 0 || j.o.file.flags != 0 {
		return nil
	}
	return &p.writes[j.o.sock.FD()]
}

// adopt makes the place of a file, so that no request has to.
func (p *filePool) adopt(fd int) {
	if n := fd + 1 - len(p.writes); n > 0 {
		p.writes = append(p.writes, make([]fileWrites, n)...)
	}
}

// nextRun puts the first job of the next run in line, if there is one.
func (p *filePool) nextRun(w *fileWrites) {
	j := w.waiting.pop()
	if w.run = j != nil; w.run {
		p.line.push(j)
	}
}

// gather makes a run of j, which was in line, and of the waiting writes after it. nil: j was cancelled.
func (p *filePool) gather(j *fileJob) *fileJob {
	w := p.writesOf(j)
	if j.state.Load() == jobCancelled {
		p.keep(j)
		if w != nil {
			p.nextRun(w)
		}
		return nil
	}
	last := j
	for n := 1; w != nil && n < maxRun && w.waiting.first != nil; n++ {
		last.next = w.waiting.pop() // one that is cancelled meanwhile is left out by the thread
		last = last.next
	}
	last.ends = true
	return j
}

// hand gives the jobs in line to threads.
func (p *filePool) hand(ended *waker) {
	for p.line.first != nil && p.out < p.limit {
		j := p.gather(p.line.pop())
		if j == nil {
			continue
		}
		if p.work == nil {
			p.work = make(chan *fileJob, p.limit)
		}
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
	for run := range work {
		last := run
		for j := run; j != nil; j = j.next {
			if j.state.CompareAndSwap(jobWaiting, jobBegun) {
				j.res = j.o.call()
			}
			last = j
		}
		p.mu.Lock()
		last.next, p.done = p.done, run
		p.mu.Unlock()
		ended.wake()
	}
}

// ended takes the jobs that have ended.
func (p *filePool) ended() *fileJob {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.done
	p.done = nil
	return list
}

// recycle takes back a job that has ended.
func (p *filePool) recycle(j *fileJob) {
	if j.ends {
		p.out--
		if w := p.writesOf(j); w != nil {
			p.nextRun(w)
		}
	}
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
		err = unix.Fdatasync(fd)
	default:
		return o.transfer(o.file.flags, unix.Syscall6)
	}
	if errno, ok := err.(unix.Errno); ok {
		return -int64(errno)
	}
	return 0
}
