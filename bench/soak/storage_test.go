package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The storage of the server: the core that received a request reads and writes
// the files, and answers. Every core has the block files open for itself, and opens them anew
// when a sync has failed.

// place says where a slot is.
type place uint8

const (
	cached place = iota // in the block file that goes through the page cache
	direct              // in the one that goes past it
	places
)

func (p place) String() string { return [...]string{"cached", "direct"}[p] }

// order is the front of a request. The data to be written is its data.
type order struct {
	Write   bool
	Place   place
	Through bool // a write has a sync of its own
	_       uint8
	Slot    uint32
	Size    uint32
}

const (
	orderType  uint16 = 2000 + iota
	goodType          // its data are the read bytes
	failedType        // the disk failed or is full, or the file was given up; the front says it
	badType           // as must not be

	slotBytes = 1 << 20
	fileOps   = 4       // requests of a file before it is full
	poolKeep  = 4 << 20 // bytes of free buffers of a core
)

// resultOf is the type of the answer to a request that ended with err.
func resultOf(err error) uint16 {
	if err == nil {
		return goodType
	}
	for _, may := range []error{
		unix.ENOSPC, unix.EIO, loop.ErrNotDurable, loop.ErrFileClosed, io.EOF, io.ErrShortWrite, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, may) {
			return failedType
		}
	}
	return badType
}

// storage is shared by all cores. All but the counters is set before they start.
type storage struct {
	dir      string
	trouble  func(error)
	files    [places]loop.CoreFile
	held     atomic.Int64 // times that a connection waited for a file
	reopened atomic.Int64 // files of which a sync had failed
	failed   atomic.Int64 // requests
}

// job is one request. Owner: the core where it is.
type job struct {
	loop.FileOp
	s     *storage
	order order
	due   control.PendingReply
	msg   *control.Message // to be written; else nil
}

// strike has the disk fail now and then.
func strike(r faulty.Request) faulty.Fault {
	pick := func(one int, of ...faulty.Fault) (f faulty.Fault) {
		if rand.IntN(one) == 0 {
			f = of[rand.IntN(len(of))]
		}
		return f
	}
	short, late := faulty.Fault{Form: faulty.Short}, faulty.Fault{Form: faulty.Late}
	switch r {
	case faulty.ReadFileEnd:
		return pick(100, faulty.Fault{Errno: unix.EIO}, short, late)
	case faulty.WriteFileEnd:
		return pick(50, faulty.Fault{Errno: unix.EIO}, faulty.Fault{Errno: unix.EIO, Form: faulty.Whole},
			faulty.Fault{Errno: unix.ENOSPC, Form: faulty.Part}, short, late)
	case faulty.SyncFileEnd:
		return pick(30, faulty.Fault{Errno: unix.EIO}, late)
	}
	return faulty.Fault{}
}

// start says which files each core opens.
func (s *storage) start(plane *loop.Config) {
	opt := loop.FileOptions{Write: true, Create: true, Ops: fileOps, CommitDelay: 1e6}
	for p := range s.files {
		s.files[p].Path = func(int) string { return filepath.Join(s.dir, place(p).String()) }
		s.files[p].Options = opt
	}
	s.files[direct].Options.Direct = uring.TryDirect
	plane.Started = func(c *loop.Core) error { return errors.Join(s.files[cached].Open(c), s.files[direct].Open(c)) }
}

// serve gets a request (Dispatcher.Fast). A file that is being opened anew refuses it.
func (s *storage) serve(conn *control.Conn, m *control.Message) {
	c, j := conn.Core(), &job{s: s}
	if _, err := binary.Decode(m.Front, binary.LittleEndian, &j.order); err != nil || j.order.Place >= places {
		s.trouble(fmt.Errorf("order %x: %v", m.Front, err))
		return
	}
	j.Done, j.due = j.done, conn.Later(m)
	f := s.files[j.order.Place].On(c)
	var err error
	at := int64(j.order.Slot) * slotBytes
	if !j.order.Write {
		err = f.ReadBuffer(&j.FileOp, int(j.order.Size), at)
	} else {
		how := loop.Committed
		if j.order.Through {
			how = loop.Through
		}
		m.Retain() // it is written from where it was received
		j.msg = m
		err = f.WriteAt(&j.FileOp, m.Data, at, how)
	}
	if err != nil { // it was not taken
		s.renew(c, j.order.Place)
		j.answer(c, err)
	}
	if conn.Hold(f) {
		s.held.Add(1)
	}
}

// done is the end of a request to the disk.
func (j *job) done(c *loop.Core, op *loop.FileOp) {
	if op.Err != nil {
		j.s.renew(c, j.order.Place)
	}
	j.answer(c, op.Err)
}

// renew opens a file anew after a failed sync.
func (s *storage) renew(c *loop.Core, p place) {
	if s.files[p].On(c).Poisoned() == nil || c.Gone() {
		return
	}
	s.files[p].Renew(c, func(c *loop.Core, err error) {
		if err == nil {
			s.reopened.Add(1)
		} else if !c.Gone() {
			s.trouble(err)
		}
	})
}

// answer ends the request.
func (j *job) answer(c *loop.Core, err error) {
	var reply *control.Message
	switch {
	case err == nil && !j.order.Write:
		reply = control.FileMessage(&j.FileOp, goodType) // the read bytes, without a copy
	case c.Gone():
		reply = control.NewMessage(goodType, nil, nil)
	default:
		reply, _ = control.LendMessage(c, goodType, 0) // without data it does not fail
	}
	if err != nil {
		j.s.failed.Add(1)
		reply.Type, reply.Front = resultOf(err), []byte(err.Error())
	}
	if j.due.Send(reply) != nil {
		reply.Release() // the session is over
	}
	if j.msg != nil {
		j.msg.Release()
	}
}
