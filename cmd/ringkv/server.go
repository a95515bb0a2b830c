package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"

	"github.com/ringmsgr/ringmsgr/control"
)

// What goes over the wire: the type of a message says what it is.
const (
	msgPut      uint16 = 1100 + iota // Front: key, Data: value
	msgGet                           // Front: key
	msgDelete                        // Front: key
	msgScan                          // Front: how the keys begin, Data: the least key
	msgDone                          // Data: the value; of a scan records without values
	msgNotFound                      // there is no such key
	msgFailed                        // Front: why
)

const (
	segmentSize = 64 << 20
	maxScan     = 1000 // keys in one answer
	maxFree     = 1024 // requests that a core keeps to use again
)

var errNotFound = errors.New("there is no such key")

// server is the store of a messenger.
type server struct {
	m       *control.Messenger
	dir     string
	segment int64         // bytes of a file, about
	salt    func() uint32 // of a new file: random, as clients must not guess it
	log     *slog.Logger
	shards  []*shard // one for each core
}

// open makes the indexes of all cores. It waits for the disk: not on a core.
func (v *server) open(cores int) (err error) {
	for i := range cores {
		s := &shard{kv: v, core: v.m.Core(i), log: v.log.With("core", i)}
		s.quiet.Fire = func(*control.Core) { s.mark() }
		s.retry.Fire = func(*control.Core) { s.settle() }
		v.shards = append(v.shards, s)
	}
	ended := make(chan error, cores)
	for _, s := range v.shards {
		s.core.Do(func(*control.Core) { s.recover(func(err error) { ended <- err }) })
	}
	for range v.shards {
		err = errors.Join(err, <-ended)
	}
	return err
}

// handle takes a message of a client (Dispatcher.Fast), on the core of its connection, and
// brings it to the core that has its key. A scan visits all, from the first one on.
func (v *server) handle(c *control.Conn, m *control.Message) bool {
	at := c.OwnerCore()
	if m.Type < msgPut || m.Type > msgScan || at == nil {
		return false
	}
	home := 0
	if m.Type != msgScan {
		home = int(crc32.Checksum(m.Front, castagnoli) % uint32(len(v.shards)))
	}
	r := v.shards[at.ID()].newRequest()
	r.shard, r.due, r.msg = v.shards[home], c.Later(m), m
	m.Retain() // a value is written from where it was received
	if r.shard.core == at {
		r.begin(at)
	} else {
		r.shard.core.Post(&r.Task)
	}
	return true
}

// request is one of a client, or of a shard itself. What it waits for is a part of it, and
// it is used again, so that nothing is allocated for it.
type request struct {
	control.FileOp        // on the disk
	control.Task          // to the core of the key
	shard          *shard // that has it
	head           []byte // header and key, as they are written
	job
}

// job is what of a request is new each time.
type job struct {
	msg     *control.Message // of the client; nil: the request is the shard's own
	due     control.PendingReply
	entry   *entry
	rec     record
	pieces  [2][]byte // rec as it is written
	in      *segment  // where rec is read or written
	written bool      // rec is durable, unless there is an error
	keys    []string  // of a scan
}

// newRequest is called on the core of s, whoever the request is for.
func (s *shard) newRequest() *request {
	if last := len(s.free) - 1; last >= 0 {
		r := s.free[last]
		s.free, r.shard = s.free[:last], s
		return r
	}
	r := &request{shard: s}
	r.Run, r.Done = r.begin, r.moved
	return r
}

// begin is called on the core that has the key.
func (r *request) begin(*control.Core) {
	s, key, value := r.shard, len(r.msg.Front), len(r.msg.Data)
	switch {
	case r.msg.Type == msgScan:
		s.scan(r)
	case key == 0 || key > maxKey:
		r.end(fmt.Errorf("a key of %d bytes: want 1 to %d", key, maxKey))
	case r.msg.Type == msgGet:
		s.get(r)
	case r.msg.Type == msgPut && (value == 0 || value > maxValue):
		r.end(fmt.Errorf("a value of %d bytes: want 1 to %d", value, maxValue))
	default:
		s.change(r)
	}
}

// moved is called when the disk has done it.
func (r *request) moved(*control.Core, *control.FileOp) {
	if r.msg != nil && r.msg.Type == msgGet {
		r.shard.got(r)
	} else {
		r.written = true
		r.shard.settle()
	}
}

// end ends a request with success, or with why there is none.
func (r *request) end(err error) {
	m, _ := r.shard.core.NewMessage(msgDone, 0) // without data it does not fail
	switch {
	case errors.Is(err, errNotFound):
		m.Type = msgNotFound
	case err != nil:
		m.Type, m.Front = msgFailed, []byte(err.Error())
	}
	r.answer(m)
}

// answer ends a request with a message, if it is one of a client. It is used again on this
// core and no other, as a FileOp belongs to its core.
func (r *request) answer(m *control.Message) {
	if r.msg == nil || r.due.Send(m) != nil {
		m.Release() // nobody waits for it
	}
	if r.msg != nil {
		r.msg.Release()
	}
	r.job = job{}
	if s := r.shard; len(s.free) < maxFree {
		s.free = append(s.free, r)
	}
}
