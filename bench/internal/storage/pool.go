package storage

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/uring"
)

// poolQueue is how many requests wait for a goroutine at most; a core that finds it full
// would have to wait, so that it is more than any load has open.
const poolQueue = 1 << 16

// pool is what a handler does that must not block, without files on its core: goroutines
// carry requests out, and answer.
type pool struct {
	files   *files
	workers int
	jobs    chan *job
	wait    sync.WaitGroup
	free    chan *job
	fill    atomic.Int64
	filling sync.WaitGroup
}

// job is one request. It goes back to the pool by itself when its answer is sent.
type job struct {
	what    blocks.Request
	due     control.PendingReply
	message *control.Message // retained until it is written
	answer  control.Message
	mem     *uring.Memory // of what is read
	again   func()        // of Saturate: no answer, but this
}

func newPool(f *files, workers int) *pool {
	p := &pool{files: f, workers: workers, jobs: make(chan *job, poolQueue), free: make(chan *job, poolQueue)}
	for range workers {
		p.wait.Go(p.work)
	}
	return p
}

func (p *pool) end() {
	_ = p.saturate(0, 0) // which cannot fail
	close(p.jobs)
	p.wait.Wait()
}

func (p *pool) get() *job {
	select {
	case j := <-p.free:
		return j
	default:
	}
	j := new(job)
	j.answer.Free = func(*control.Message) { p.put(j) }
	return j
}

func (p *pool) put(j *job) {
	select {
	case p.free <- j:
	default:
		_ = j.mem.Unmap() // nobody has it
	}
}

// errBusy answers a request for which there is no room.
var errBusy = errors.New("too many requests wait")

// handOver takes a request (Dispatcher.Fast).
func (s *Messenger) handOver(c *control.Conn, m *control.Message) bool {
	what, err := blocks.Parse(m.Front, s.size)
	if err != nil || what.Kind == blocks.Ping {
		answer(c.OwnerCore(), c.Later(m), nil, err)
		return true
	}
	j := s.pool.get()
	j.what, j.due = what, c.Later(m)
	if what.Kind == blocks.Write {
		m.Retain() // it is written from where it was received
		j.message = m
	}
	select {
	case s.pool.jobs <- j:
	default:
		if j.message != nil {
			j.message.Release()
			j.message = nil
		}
		answer(c.OwnerCore(), j.due, nil, errBusy)
		s.pool.put(j)
	}
	return true
}

func (p *pool) work() {
	for j := range p.jobs {
		err := p.do(j)
		if j.again != nil {
			j.again()
			continue
		}
		if j.answer.Type = blocks.TypeDone; err != nil {
			j.answer.Type, j.answer.Front, j.answer.Data = blocks.TypeFailed, []byte(err.Error()), nil
		}
		if due := j.due; due.Send(&j.answer) != nil {
			j.answer.Release() // the connection is gone
		}
	}
}

// do carries a request out.
func (p *pool) do(j *job) (err error) {
	j.answer.Front, j.answer.Data = nil, nil
	if j.what.Kind == blocks.Write {
		err = p.files.carryOut(j.what, j.message.Data)
		j.message.Release()
		j.message = nil
		return err
	}
	if j.mem == nil || len(j.mem.Bytes()) < j.what.Len {
		_ = j.mem.Unmap() // nobody has it
		if j.mem, err = uring.Map(j.what.Len); err != nil {
			return err
		}
	}
	j.answer.Data = j.mem.Bytes()[:j.what.Len]
	return p.files.carryOut(j.what, j.answer.Data)
}

// saturate keeps n direct reads of blocks under way, and returns when not more are.
func (p *pool) saturate(n int, size int64) error {
	p.fill.Store(0)
	p.filling.Wait()
	if n == 0 {
		return nil
	}
	if p.files[direct] == nil {
		return errWay(blocks.Request{Flags: blocks.Direct})
	}
	p.fill.Store(1)
	for range n {
		random := newDice(size)
		j := &job{what: blocks.Request{Kind: blocks.Read, Len: blocks.Size, Flags: blocks.Direct, Off: random.roll()}}
		p.filling.Add(1)
		j.again = func() {
			if p.fill.Load() == 0 {
				_ = j.mem.Unmap() // nobody has it
				p.filling.Done()
				return
			}
			j.what.Off = random.roll()
			p.jobs <- j
		}
		p.jobs <- j
	}
	return nil
}
