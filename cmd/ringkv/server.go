package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
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

	acceptLoss bool // start although acknowledged data is lost
}

// open makes the indexes of all cores. It waits for the disk: not on a core.
func (v *server) open(cores int) error {
	for i := range cores {
		s := &shard{kv: v, core: v.m.Core(i), log: v.log.With("core", i)}
		s.retry.Fire = func(*loop.Core, time.Duration) { s.settle() }
		s.timer.Fire = func(*loop.Core, time.Duration) { s.setMark(s.markSet) }
		v.shards = append(v.shards, s)
	}
	if err := v.findFiles(); err != nil {
		return err
	}
	return each(v.shards, (*shard).recover)
}

// each calls do on the cores of shards, and waits until each has called ended.
func each(shards []*shard, do func(s *shard, ended func(error))) (err error) {
	ended := make(chan error, len(shards))
	for _, s := range shards {
		s.core.Post(&loop.Task{Run: func(*loop.Core) { do(s, func(err error) { ended <- err }) }})
	}
	for range shards {
		err = errors.Join(err, <-ended)
	}
	return err
}

// handle takes a message of a client (Dispatcher.Fast), on the core of its connection, and
// posts it to the core of its key. A scan visits all cores, from the first one on.
func (v *server) handle(c *control.Conn, m *control.Message) bool {
	at := c.Core()
	if m.Type < kvformat.Put || m.Type > kvformat.Scan || at == nil {
		return false
	}
	home := 0
	if m.Type != kvformat.Scan {
		home = int(kvformat.Sum(m.Front) % uint32(len(v.shards)))
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

// request is a request of a client, or of a shard itself. It has its FileOp and Task and is
// used again, so that a request allocates no memory.
type request struct {
	loop.FileOp        // on the disk
	loop.Task          // to the core of the key
	shard       *shard // that has it
	head        []byte // header and key, as they are written
	job
}

// job is the part of a request that is new each time.
type job struct {
	msg     *control.Message // of the client; nil: the request is the shard's own
	due     control.PendingReply
	entry   *entry
	rec     kvformat.Record
	pieces  [2][]byte // rec as it is written
	in      *segment  // where rec is read or written
	written bool      // rec is durable, unless there is an error
	keys    []string  // of a scan
}

// newRequest is called on the core of s, for a request to any shard.
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
func (r *request) begin(*loop.Core) {
	s, key, value := r.shard, len(r.msg.Front), len(r.msg.Data)
	switch {
	case r.msg.Type == kvformat.Scan:
		s.scan(r)
	case key == 0 || key > kvformat.MaxKey:
		r.end(fmt.Errorf("a key of %d bytes: want 1 to %d", key, kvformat.MaxKey))
	case r.msg.Type == kvformat.Get:
		s.get(r)
	case r.msg.Type == kvformat.Put && (value == 0 || value > kvformat.MaxValue):
		r.end(fmt.Errorf("a value of %d bytes: want 1 to %d", value, kvformat.MaxValue))
	default:
		s.change(r)
	}
}

// moved is called when the disk has done it.
func (r *request) moved(*loop.Core, *loop.FileOp) {
	if r.msg != nil && r.msg.Type == kvformat.Get {
		r.shard.got(r)
	} else {
		r.written = true
		r.shard.settle()
	}
}

// end ends a request with success, or with why there is none.
func (r *request) end(err error) {
	m, _ := control.LendMessage(r.shard.core, kvformat.Done, 0) // without data it does not fail
	switch {
	case errors.Is(err, errNotFound):
		m.Type = kvformat.NotFound
	case err != nil:
		m.Type, m.Front = kvformat.Failed, []byte(err.Error())
	}
	r.answer(m)
}

// answer ends a request with a message, if it is one of a client. It is used again on this
// core and no other, as a FileOp belongs to its core.
func (r *request) answer(m *control.Message) {
	if r.msg == nil {
		m.Release()
	} else if r.due.Send(m) != nil {
		m.Release() // the client is gone, or does not read
	}
	if r.msg != nil {
		r.msg.Release()
	}
	r.job = job{}
	if s := r.shard; len(s.free) < maxFree {
		s.free = append(s.free, r)
	}
}
