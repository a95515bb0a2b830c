package storage

import (
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

// Settings has its kind of I/O.
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
	mem, err := uring.Map(blocks.MaxLen + 2*blocks.Size)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Unmap() }() // it is not used any more
	room := mem.Bytes()
	n := server.NewFramed(c, enc, dec, room)
	return n.Serve(func(f *frame.Frame) error {
		m, err := frame.ParseMessageHeader(f.Seg[0])
		if err != nil {
			return err
		}
		what, err := blocks.Parse(f.Seg[1], b.cfg.Size)
		if err == nil && what.Kind == blocks.Read {
			f.Seg[3] = room[blocks.Size:][:what.Len] // after the header
		}
		if err == nil {
			err = b.files.carryOut(what, f.Seg[3])
		}
		m.Type, f.Seg[1] = blocks.TypeDone, nil
		if err != nil {
			m.Type, f.Seg[1] = blocks.TypeFailed, []byte(err.Error())
		}
		if err != nil || what.Kind != blocks.Read {
			f.Seg[3] = nil
		}
		m.Put((*[frame.MessageHeaderSize]byte)(f.Seg[0]))
		return n.Reply(f)
	})
}
