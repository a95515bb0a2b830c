package storage

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// closeTimeout bounds the shutdown of a messenger.
const closeTimeout = 5 * time.Second

// Messenger is a storage server on one core of the messenger, which differs from others in
// who reads and writes the file.
type Messenger struct {
	m    *control.Messenger
	addr wire.Addr
	size int64

	file [ways]*control.File // of the core, if that reads and writes; the core's
	free []*request          // the core's
	busy int                 // reads of Saturate that are under way; the core's
	fill int                 // how many of them there should be; the core's

	files files // of those who make system calls
	pool  *pool // nil: the core makes them
}

// NewMessenger starts one whose core reads and writes files as the library has it.
func NewMessenger(cfg Config, backend string) (*Messenger, error) {
	s, err := newMessenger(cfg, backend)
	if err != nil {
		return nil, err
	}
	opened := make(chan error, 1)
	for i, opt := range [ways]control.FileOptions{
		buffered: {Direct: control.Buffered}, aloneBuffered: {Direct: control.Buffered, Ops: 1},
		direct: {Direct: control.Direct}, aloneDirect: {Direct: control.Direct, Ops: 1},
	} {
		if opt.Direct == control.Direct && !cfg.Direct {
			continue
		}
		opt.Write = true
		d, err := s.m.OpenFile(cfg.Path, opt)
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.m.Core(0).Do(func(c *control.Core) {
			var err error
			s.file[i], err = c.AttachFile(d)
			opened <- err
		})
		if err := <-opened; err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return s.serve(s.onCore)
}

// NewInline starts one whose core makes blocking system calls, one after the other.
func NewInline(cfg Config, backend string) (*Messenger, error) {
	return newBlocking(cfg, backend, 0)
}

// NewPool starts one whose core hands each request to one of so many goroutines, which
// make blocking system calls.
func NewPool(cfg Config, backend string, workers int) (*Messenger, error) {
	return newBlocking(cfg, backend, workers)
}

func newBlocking(cfg Config, backend string, workers int) (*Messenger, error) {
	s, err := newMessenger(cfg, backend)
	if err != nil {
		return nil, err
	}
	if s.files, err = openFiles(cfg); err != nil {
		_ = s.Close()
		return nil, err
	}
	if workers == 0 {
		return s.serve(s.inline)
	}
	s.pool = newPool(&s.files, workers)
	return s.serve(s.handOver)
}

func newMessenger(cfg Config, backend string) (*Messenger, error) {
	m, err := control.New(control.Config{
		Name:      wire.EntityName{Type: wire.OSD, ID: "0"},
		AlignFrom: blocks.Size, // so that blocks can be written as they are received
		Plane:     dataplane.Config{Cores: 1, Driver: uring.Config{Backend: uring.Backend(backend)}},
	})
	if err != nil {
		return nil, err
	}
	return &Messenger{m: m, size: cfg.Size}, nil
}

func (s *Messenger) serve(fast func(*control.Conn, *control.Message) bool) (*Messenger, error) {
	err := s.m.Start(&control.Dispatcher{Fast: fast})
	if err == nil {
		var addrs wire.AddrVec
		if addrs, err = s.m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}); err == nil {
			s.addr = addrs[0]
			return s, nil
		}
	}
	_ = s.Close()
	return nil, err
}

// Addr returns where it listens.
func (s *Messenger) Addr() net.Addr { return net.TCPAddrFromAddrPort(s.addr.AddrPort) }

// Nonce is that of its address.
func (s *Messenger) Nonce() uint32 { return s.addr.Nonce }

// Syscalls returns how many system calls its core has made for the network and for files,
// if nobody else makes some.
func (s *Messenger) Syscalls() (n uint64, known bool) {
	st, err := s.m.Plane().Stats(0)
	return st.Driver.Syscalls, err == nil && s.files == files{}
}

// Settings says what it runs on.
func (s *Messenger) Settings() map[string]string {
	set := map[string]string{"backend": string(s.m.Plane().Info().Backend), "GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0))}
	if s.pool != nil {
		set["goroutines"] = strconv.Itoa(s.pool.workers)
	}
	return set
}

// Close ends it and all connections. Call it once.
func (s *Messenger) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.m.Shutdown(ctx)
	if s.pool != nil {
		s.pool.end()
	}
	s.files.close()
	return err
}

// request is one that waits for the disk. Owner: the core.
type request struct {
	control.FileOp
	s       *Messenger
	what    blocks.Request
	due     control.PendingReply
	message *control.Message // retained until it is written; nil: a read
}

// onCore takes a request (Dispatcher.Fast).
func (s *Messenger) onCore(c *control.Conn, m *control.Message) bool {
	core := c.OwnerCore()
	what, err := blocks.Parse(m.Front, s.size)
	if err != nil || what.Kind == blocks.Ping {
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
	file := s.file[way(what)]
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
		how := control.Through
		if what.Flags&blocks.Grouped != 0 {
			how = control.Committed
		}
		r.Err = file.WriteAt(&r.FileOp, m.Data, what.Off, how)
	}
	if r.Err != nil { // it was not taken
		r.done(core, &r.FileOp)
		return true
	}
	file.Hold(c)
	return true
}

// done answers, on the core.
func (r *request) done(c *control.Core, op *control.FileOp) {
	s, err := r.s, op.Err
	var data *control.Message
	if err == nil && r.what.Kind == blocks.Read {
		if err = blocks.Stamped(op.Data, r.what.Off); err == nil {
			data = op.Message(blocks.TypeDone)
		}
	}
	answer(c, r.due, data, err)
	if r.message != nil {
		r.message.Release()
	}
	r.due, r.message = control.PendingReply{}, nil
	s.free = append(s.free, r)
}

// answer sends what there is to say.
func answer(c *control.Core, due control.PendingReply, m *control.Message, err error) {
	if m == nil {
		m, _ = c.NewMessage(blocks.TypeDone, 0) // without data it does not fail
	}
	if err != nil {
		m.Type, m.Front = blocks.TypeFailed, []byte(err.Error())
	}
	if due.Send(m) != nil {
		m.Release() // the connection is gone
	}
}

// inline takes a request, and waits for the disk (Dispatcher.Fast).
func (s *Messenger) inline(c *control.Conn, m *control.Message) bool {
	core := c.OwnerCore()
	what, err := blocks.Parse(m.Front, s.size)
	var reply *control.Message
	data := m.Data
	if err == nil && what.Kind == blocks.Read {
		if reply, err = core.NewMessage(blocks.TypeDone, what.Len); err == nil {
			data = reply.Data
		}
	}
	if err == nil {
		err = s.files.carryOut(what, data)
	}
	answer(core, c.Later(m), reply, err)
	return true
}

// Saturate keeps so many direct reads of random blocks under way, for nobody; 0: none.
func (s *Messenger) Saturate(n int) error {
	if s.pool != nil {
		return s.pool.saturate(n, s.size)
	}
	set := make(chan error, 1)
	s.m.Core(0).Do(func(*control.Core) { set <- s.saturate(n) })
	return <-set
}

func (s *Messenger) saturate(n int) error {
	if s.file[direct] == nil {
		return errWay(blocks.Request{Flags: blocks.Direct})
	}
	s.fill = n
	random := newDice(s.size)
	for s.busy < n {
		op := &control.FileOp{}
		op.Done = func(_ *control.Core, op *control.FileOp) {
			if s.busy <= s.fill && op.Err == nil && s.file[direct].ReadBuffer(op, blocks.Size, random.roll()) == nil {
				return
			}
			s.busy--
		}
		s.busy++
		if err := s.file[direct].ReadBuffer(op, blocks.Size, random.roll()); err != nil {
			s.busy--
			return err
		}
	}
	return nil
}
