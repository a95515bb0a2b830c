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
)

// The storage of the server: the core that received a request reads and writes
// the files, and answers. Every core has the block files open for itself, gives them up
// when it is removed, and opens them anew when a sync has failed.

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
	goodType          // its data is what was read
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
		unix.ENOSPC, unix.EIO, control.ErrNotDurable, control.ErrFileClosed, errNoFile, io.EOF, io.ErrShortWrite, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, may) {
			return failedType
		}
	}
	return badType
}

var errNoFile = errors.New("soak: the core has no such file open")

// storage is what all cores share of it. All but the counters is set before they start.
type storage struct {
	dir      string
	trouble  func(error)
	held     atomic.Int64 // times that a connection waited for a file
	reopened atomic.Int64 // files of which a sync had failed
	failed   atomic.Int64 // requests
}

// shelf is what one core has open.
type shelf struct {
	files   [places]*control.File
	leaving bool // the core is being removed
}

var shelves control.CoreLocal[shelf]

// job is one request. Owner: the core where it is.
type job struct {
	control.FileOp
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
	switch r {
	case faulty.ReadFileEnd:
		return pick(100, faulty.Fault{Errno: unix.EIO}, faulty.Fault{Form: faulty.Short}, faulty.Fault{Form: faulty.Late})
	case faulty.WriteFileEnd:
		return pick(50, faulty.Fault{Errno: unix.EIO}, faulty.Fault{Errno: unix.EIO, Form: faulty.Whole},
			faulty.Fault{Errno: unix.ENOSPC, Form: faulty.Part}, faulty.Fault{Form: faulty.Short}, faulty.Fault{Form: faulty.Late})
	case faulty.SyncFileEnd:
		return pick(30, faulty.Fault{Errno: unix.EIO}, faulty.Fault{Form: faulty.Late})
	}
	return faulty.Fault{}
}

// started opens the files of a new core (Config.CoreStarted).
func (s *storage) started(c *control.Core) error {
	s.open(c, cached)
	s.open(c, direct)
	return nil
}

func (s *storage) open(c *control.Core, p place) {
	opt := control.FileOptions{Write: true, Create: true, Ops: fileOps, CommitDelay: 1e6}
	if p == direct {
		opt.Direct = control.TryDirect
	}
	c.OpenFile(filepath.Join(s.dir, p.String()), opt, func(c *control.Core, f *control.File, err error) {
		sh := shelves.Of(c)
		switch {
		case err != nil && !c.Gone():
			s.trouble(err)
		case err == nil && sh.leaving:
			f.Close()
		case err == nil:
			sh.files[p] = f
		}
	})
}

// leave closes the files of a core that is going to be removed.
func (s *storage) leave(c *control.Core) {
	sh := shelves.Of(c)
	sh.leaving = true
	for p, f := range sh.files {
		sh.files[p] = nil
		if f != nil {
			f.Close()
		}
	}
}

// serve gets a request (Dispatcher.Fast). A core that has no file any more, or not yet,
// refuses it.
func (s *storage) serve(conn *control.Conn, m *control.Message) {
	c, j := conn.OwnerCore(), &job{s: s}
	if _, err := binary.Decode(m.Front, binary.LittleEndian, &j.order); err != nil || j.order.Place >= places {
		s.trouble(fmt.Errorf("order %x: %v", m.Front, err))
		return
	}
	j.Done, j.due = j.done, conn.Later(m)
	f := shelves.Of(c).files[j.order.Place]
	if f == nil {
		j.answer(c, errNoFile)
		return
	}
	var err error
	at := int64(j.order.Slot) * slotBytes
	if !j.order.Write {
		err = f.ReadBuffer(&j.FileOp, int(j.order.Size), at)
	} else {
		how := control.Committed
		if j.order.Through {
			how = control.Through
		}
		m.Retain() // it is written from where it was received
		j.msg = m
		err = f.WriteAt(&j.FileOp, m.Data, at, how)
	}
	if err != nil { // it was not taken
		s.renew(c, j.order.Place)
		j.answer(c, err)
	}
	if f := shelves.Of(c).files[j.order.Place]; f != nil && f.Hold(conn) {
		s.held.Add(1)
	}
}

// done is the end of what the disk was asked.
func (j *job) done(c *control.Core, op *control.FileOp) {
	if op.Err != nil {
		j.s.renew(c, j.order.Place)
	}
	j.answer(c, op.Err)
}

// renew opens a file anew whose sync has failed.
func (s *storage) renew(c *control.Core, p place) {
	sh := shelves.Of(c)
	f := sh.files[p]
	if f == nil || f.Poisoned() == nil || c.Gone() {
		return
	}
	sh.files[p] = nil
	f.Close()
	s.reopened.Add(1)
	s.open(c, p)
}

// answer ends the request.
func (j *job) answer(c *control.Core, err error) {
	var reply *control.Message
	switch {
	case err == nil && !j.order.Write:
		reply = j.Message(goodType) // what was read, without a copy
	case c.Gone():
		reply = control.NewMessage(goodType, nil, nil)
	default:
		reply, _ = c.NewMessage(goodType, 0) // without data it does not fail
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
