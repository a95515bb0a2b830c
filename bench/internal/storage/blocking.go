package storage

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/framed"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Blocking is the storage server that a Go programmer writes with package net: a goroutine
// per connection reads requests, calls ReadAt or WriteAt, and writes answers, which are
// flushed when no complete request is waiting. It speaks msgr2.1.
type Blocking struct {
	*framed.Server
	cfg     Config
	files   files
	fill    atomic.Bool
	filling sync.WaitGroup
}

// NewBlocking starts one on a free port of the loopback address.
func NewBlocking(cfg Config) (*Blocking, error) {
	f, err := openFiles(cfg)
	if err != nil {
		return nil, err
	}
	b := &Blocking{cfg: cfg, files: f}
	if b.Server, err = framed.Listen(b.serve); err != nil {
		f.close()
		return nil, err
	}
	return b, nil
}

// Settings says what it runs on.
func (b *Blocking) Settings() map[string]string {
	return map[string]string{"GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0))}
}

// Close ends it and all connections. Call it once.
func (b *Blocking) Close() error {
	b.fill.Store(false)
	err := b.Server.Close()
	b.filling.Wait()
	b.files.close()
	return err
}

// Saturate has so many goroutines read random blocks, for nobody; 0: none.
func (b *Blocking) Saturate(n int) error {
	b.fill.Store(false)
	b.filling.Wait()
	b.fill.Store(true)
	for range n {
		mem, err := uring.Map(blocks.Size)
		if err != nil {
			return err
		}
		b.filling.Go(func() {
			random := newDice(b.cfg.Size)
			for b.fill.Load() {
				r := blocks.Request{Kind: blocks.Read, Flags: blocks.Direct, Len: blocks.Size, Off: random.roll()}
				if b.files.carryOut(r, mem.Bytes()[:blocks.Size]) != nil {
					break
				}
			}
			_ = mem.Unmap() // nobody has it
		})
	}
	return nil
}

// serve answers on one connection.
func (b *Blocking) serve(c *framed.Conn) error {
	mem, err := uring.Map(blocks.MaxLen)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Unmap() }() // nobody has it
	c.Data = mem.Bytes()
	return c.Serve(func(m frame.MessageHeader, front, data []byte) error {
		what, err := blocks.Parse(front, b.cfg.Size)
		if err == nil && what.Kind == blocks.Read {
			data = c.Data[:what.Len]
		}
		if err == nil {
			err = b.files.carryOut(what, data)
		}
		switch {
		case err != nil:
			return c.Answer(m, blocks.TypeFailed, []byte(err.Error()), nil)
		case what.Kind != blocks.Read:
			return c.Answer(m, blocks.TypeDone, nil, nil)
		}
		return c.Answer(m, blocks.TypeDone, nil, data)
	})
}
