package main

import (
	"github.com/ringmsgr/ringmsgr/control"
)

// What goes over the wire: the type of a message says what it is.
const (
	msgPut      uint16 = 1100 + iota // Front: key, Data: value
	msgGet                           // Front: key
	msgDelete                        // Front: key
	msgScan                          // Front: how the keys begin, Data: the least key
	msgDone                          // Data: the value; of a scan, each key behind its length (uvarint)
	msgNotFound                      // there is no such key
	msgFailed                        // Front: why
	doMark                           // not on the wire: what a shard does by itself
	doCopy
)

// request is one of a client, or of the shard itself. What it waits for is a part of it, and
// it is used again: nothing is allocated for it.
type request struct {
	control.FileOp // on the disk
	control.Task   // to the core of the key
	do             uint16
	due            control.PendingReply
	msg            *control.Message // of the client; of a copy, what was read
	rec            record
	node           *node
	in             *segment // where rec is read or written
	head           []byte   // header and key
	pieces         [][]byte // what is written
	ended          bool     // and durable, unless it has an error
	keys           []string // of a scan
}

// maxFree is how many requests a core keeps to be used again.
const maxFree = 1024

// newRequest makes one. On the core of s.
func (s *shard) newRequest() *request {
	if last := len(s.free) - 1; last >= 0 {
		r := s.free[last]
		s.free = s.free[:last]
		return r
	}
	r := new(request)
	r.Run, r.Done = r.begin, r.moved
	return r
}

// begin is called on the core that has the key.
func (r *request) begin(c *control.Core) {
	switch s := shards.Of(c); {
	case c.Gone() || !s.open:
		r.fail(s, errNotServed)
	case r.do == msgScan:
		s.scan(r)
	case r.do == msgGet:
		s.get(r)
	default:
		s.change(r)
	}
}

// moved is called when the disk has done it.
func (r *request) moved(c *control.Core, _ *control.FileOp) {
	switch s := shards.Of(c); {
	case r.do == msgGet:
		s.got(r)
	case r.do == doCopy && r.msg == nil:
		s.copied(r)
	default:
		r.ended = true
		s.settle()
	}
}

// answer ends a request with a message that has nothing in it.
func (r *request) answer(s *shard, typ uint16) {
	m, err := s.core.NewMessage(typ, 0)
	if err != nil {
		m = control.NewMessage(typ, nil, nil)
	}
	r.send(s, m)
}

func (r *request) fail(s *shard, err error) {
	r.send(s, control.NewMessage(msgFailed, []byte(err.Error()), nil))
}

func (r *request) send(s *shard, m *control.Message) {
	if err := r.due.Send(m); err != nil {
		m.Release() // nobody waits for it any more
	}
	r.finish(s)
}

// finish gives back what a request has.
func (r *request) finish(s *shard) {
	if r.msg != nil {
		r.msg.Release()
	}
	clear(r.pieces)
	r.due, r.msg, r.rec, r.node, r.in, r.keys, r.ended = control.PendingReply{}, nil, record{}, nil, nil, nil, false
	if len(s.free) < maxFree {
		s.free = append(s.free, r)
	}
}
