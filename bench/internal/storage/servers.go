package storage

import (
	"net"
	"runtime"
	"strconv"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/server"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Messenger is a storage server on one core of the messenger, which reads and writes the
// file as the library has it.
type Messenger struct {
	*server.Messenger
	size int64

	file [ways]loop.CoreFile // only the files of the core's own I/O are open
	free []*request          // the core's
}

// NewMessenger starts one on a free port of the loopback address.
func NewMessenger(cfg Config, backend string) (*Messenger, error) {
	s := &Messenger{size: cfg.Size}
	plane := loop.Config{Cores: 1, Driver: uring.Config{Backend: uring.Backend(backend)}}
	plane.Started = func(c *loop.Core) error { return s.open(c, cfg) }
	m, err := server.StartMessenger(control.Config{
		Name:      wire.EntityName{Type: wire.OSD, ID: "0"},
		Receiving: control.Receiving{AlignFrom: blocks.Size}, // so that blocks can be written as they are received
		Plane:     plane,
	}, false, s.onCore)
	s.Messenger = m
	return s, err
}

func (s *Messenger) open(c *loop.Core, cfg Config) error {
	for i, mode := range [ways]uring.DirectMode{buffered: uring.Buffered, direct: uring.Direct} {
		if i == direct && !cfg.Direct {
			continue
		}
		f := &s.file[i]
		f.Path, f.Options = func(int) string { return cfg.Path }, loop.FileOptions{Direct: mode, Write: true}
		if err := f.Open(c); err != nil {
			return err
		}
	}
	return nil
}

// request is one that waits for the disk. Owner: the core.
type request struct {
	loop.FileOp
	s       *Messenger
	what    blocks.Request
	due     control.PendingReply
	message *control.Message // retained until it is written; nil: a read
}

// onCore takes a request (Dispatcher.Fast).
func (s *Messenger) onCore(c *control.Conn, m *control.Message) bool {
	core := c.Core()
	what, err := blocks.Parse(m.Front, s.size)
	if err != nil {
		answer(core, c.Later(m), nil, err)
		return true
	}
	var r *request
	if last := len(s.free) - 1; last >= 0 {
		r, s.free = s.free[last], s.free[:last]
	} else {
		r = &request{s: s}
		r.Done = r.done
	}
	r.what, r.due, r.Err = what, c.Later(m), nil
	file := s.file[way(what)].On(core)
	switch {
	case file == nil:
		r.Err = errWay(what)
	case what.Kind == blocks.Read:
		r.Err = file.ReadBuffer(&r.FileOp, what.Len, what.Off)
	default:
		if r.Err = blocks.Stamped(m.Data, what.Off); r.Err != nil {
			break
		}
		m.Retain() // it is written from where it was received
		r.message = m
		how := loop.Through
		if what.Flags&blocks.Grouped != 0 {
			how = loop.Committed
		}
		r.Err = file.WriteAt(&r.FileOp, m.Data, what.Off, how)
	}
	if r.Err != nil { // it was not taken
		r.done(core, &r.FileOp)
		return true
	}
	c.Hold(file)
	return true
}

// done answers, on the core.
func (r *request) done(c *loop.Core, op *loop.FileOp) {
	s, err := r.s, op.Err
	var data *control.Message
	if err == nil && r.what.Kind == blocks.Read {
		if err = blocks.Stamped(op.Data, r.what.Off); err == nil {
			data = control.FileMessage(op, blocks.TypeDone)
		}
	}
	answer(c, r.due, data, err)
	if r.message != nil {
		r.message.Release()
	}
	r.due, r.message = control.PendingReply{}, nil
	s.free = append(s.free, r)
}

func answer(c *loop.Core, due control.PendingReply, m *control.Message, err error) {
	if m == nil {
		m, _ = control.LendMessage(c, blocks.TypeDone, 0) // without data it does not fail
	}
	if err != nil {
		m.Type, m.Front = blocks.TypeFailed, []byte(err.Error())
	}
	if due.Send(m) != nil {
		m.Release() // the connection is gone, or its client does not read
	}
}

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
