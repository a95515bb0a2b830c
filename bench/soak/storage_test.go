package soak

import (
	"context"
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

// action is what is done with a slot.
type action uint8

const (
	readSlot action = iota
	writeSlot
)

// order is the front of a request. The data to be written is its data.
type order struct {
	Action action
	Place  place
	How    control.Durability
	_      uint8
	Slot   uint32
	Off    uint32 // of a read
	Size   uint32
}

const (
	orderType  uint16 = 2000
	resultType uint16 = 2001 // Front: a result and a text; Data: what was read

	slotBytes = 1 << 20
	fileOps   = 4       // requests of a file before it is full
	poolKeep  = 4 << 20 // bytes of free buffers of a core
)

// result is how a request ended.
type result uint8

const (
	good    result = iota
	failed         // the disk failed or is full, or the file was given up
	unasked        // as must not be
)

func resultOf(err error) result {
	switch {
	case err == nil:
		return good
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EIO), errors.Is(err, control.ErrNotDurable), errors.Is(err, control.ErrFileClosed), errors.Is(err, errNoFile),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrShortWrite), errors.Is(err, io.ErrUnexpectedEOF):
		return failed
	}
	return unasked
}

var errNoFile = errors.New("soak: no core has the file open")

// storageSample is what the storage counted.
type storageSample struct {
	Held     int64 `json:"held"`     // times that a connection waited for a file
	Reopened int64 `json:"reopened"` // files of which a sync had failed
	Failed   int64 `json:"failed"`
}

// storage is what all cores share of it. All but the counters is set before they start.
type storage struct {
	dir                    string
	held, reopened, failed atomic.Int64
	trouble                func(error)
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
	tid   uint64
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
	j.Done, j.due, j.tid = j.done, conn.Later(m), m.TID
	f := shelves.Of(c).files[j.order.Place]
	if f == nil {
		j.answer(c, errNoFile)
		return
	}
	var err error
	at := int64(j.order.Slot) * slotBytes
	if j.order.Action == readSlot {
		err = f.ReadBuffer(&j.FileOp, int(j.order.Size), at+int64(j.order.Off))
	} else {
		m.Retain() // it is written from where it was received
		j.msg = m
		err = f.WriteAt(&j.FileOp, m.Data, at, j.order.How)
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
	res := resultOf(err)
	if res != good {
		j.s.failed.Add(1)
	}
	var reply *control.Message
	switch {
	case res == good && j.order.Action == readSlot:
		reply = j.Message(resultType) // what was read, without a copy
	case c.Gone():
		reply = control.NewMessage(resultType, nil, nil)
	default:
		reply, _ = c.NewMessage(resultType, 0) // without data it does not fail
	}
	reply.Front = append(reply.Front, byte(res))
	if err != nil {
		reply.Front = append(reply.Front, err.Error()...)
	}
	switch send := j.due.Send(reply); {
	case errors.Is(send, control.ErrQueueFull):
		go j.s.wait(j.due.Conn(), reply, j.tid)
	case send != nil:
		reply.Release() // the session is over
	}
	if j.msg != nil {
		j.msg.Release()
	}
}

// wait sends an answer when there is room.
func (s *storage) wait(conn *control.Conn, reply *control.Message, tid uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply.TID = tid
	if conn.SendContext(ctx, reply) != nil {
		reply.Release()
	}
}

func (s *storage) sample() storageSample {
	return storageSample{Held: s.held.Load(), Reopened: s.reopened.Load(), Failed: s.failed.Load()}
}
