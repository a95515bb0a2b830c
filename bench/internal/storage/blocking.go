package storage

import (
	"bufio"
	"net"
	"runtime"
	"strconv"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/server"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Blocking is the storage server that a Go programmer writes with package net: a goroutine
// per connection reads requests, calls ReadAt or WriteAt, and writes answers, which are
// flushed when no complete request is waiting. It speaks msgr2.1.
type Blocking struct {
	*server.Listener
	cfg   Config
	files files
}

// NewBlocking starts one on a free port of the loopback address.
func NewBlocking(cfg Config) (*Blocking, error) {
	f, err := openFiles(cfg)
	if err != nil {
		return nil, err
	}
	b := &Blocking{cfg: cfg, files: f}
	if b.Listener, err = server.Listen(false, b.serve); err != nil {
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
	err := b.Listener.Close()
	b.files.close()
	return err
}

// serve answers on one connection.
func (b *Blocking) serve(c net.Conn, enc *frame.Encoder, dec *frame.Decoder) error {
	mem, err := uring.Map(blocks.MaxLen)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Unmap() }() // nobody has it
	f := &framed{data: mem.Bytes(), c: c, r: bufio.NewReaderSize(c, bufferSize), w: bufio.NewWriterSize(c, bufferSize), enc: enc, dec: dec}
	return f.serve(func(m frame.MessageHeader, front, data []byte) error {
		what, err := blocks.Parse(front, b.cfg.Size)
		if err == nil && what.Kind == blocks.Read {
			data = f.data[:what.Len]
		}
		if err == nil {
			err = b.files.carryOut(what, data)
		}
		switch {
		case err != nil:
			return f.answer(m, blocks.TypeFailed, []byte(err.Error()), nil)
		case what.Kind != blocks.Read:
			return f.answer(m, blocks.TypeDone, nil, nil)
		}
		return f.answer(m, blocks.TypeDone, nil, data)
	})
}
