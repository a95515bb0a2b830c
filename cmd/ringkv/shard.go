package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
)

// shard is the part of the store that one core has: a log, cut into segments, and an index
// of it. Only that core touches it, so that there is no lock.
type shard struct {
	kv       *server
	core     *control.Core
	log      *slog.Logger
	open     bool // the index is made
	index    index
	segments []*segment // oldest first
	active   *segment   // the last one, if records can be appended
	queue    []*request // records on their way to the disk, in the order of the log
	waiting  []*request // for the next segment
	durable  position   // all records below it are applied
	marked   position   // of that, what the disk knows
	live     int64      // bytes of records that have a value
	free     []*request
	quiet    control.Timer // of rest
	rolling
	compaction
}

// segment is one file of a log.
type segment struct {
	path         string
	number, salt uint32
	file         *control.File
	end          int64
	broken       error   // a write failed: it ends there
	nodes        []*node // those whose values are or were here
}

// markAfter is how long nothing is written before a mark is.
const markAfter = 100 * time.Millisecond

// shards has each core's.
var shards control.CoreLocal[shard]

func (s *shard) init(kv *server, c *control.Core) {
	s.kv, s.core, s.log = kv, c, kv.log.With("core", c.ID())
	s.index.head.next = make([]*node, levels)
	s.retry.Fire = func(*control.Core) { s.stuck = false; s.settle() }
	s.quiet.Fire = func(*control.Core) { s.rest() }
	s.again.Fire = func(*control.Core) { s.compact() }
}

// get reads a value. What is not durable yet is not seen.
func (s *shard) get(r *request) {
	if r.node = s.index.find(r.msg.Front); r.node == nil || r.node.in == nil {
		r.answer(s, msgNotFound)
		return
	}
	conn := r.due.Conn()
	if err := r.read(); err != nil {
		r.fail(s, err)
		return
	}
	r.in.file.Hold(conn) // no more of them than the disk can take
}

// read reads the record of r.node.
func (r *request) read() error {
	r.in, r.rec.off = r.node.in, r.node.off
	return r.in.file.ReadBuffer(&r.FileOp, int(r.node.size), r.rec.off)
}

// got answers with what was read, if it is what was written. The buffer that the disk has
// filled is what is sent.
func (s *shard) got(r *request) {
	rec, err := r.check()
	switch {
	case errors.Is(err, control.ErrFileClosed) && r.in != r.node.in: // it has been moved meanwhile
		s.get(r)
	case err != nil:
		s.log.Error("a value cannot be read", "key", r.node.key, "file", r.in.path, "at", r.rec.off, "err", err)
		r.fail(s, err)
	default:
		m := r.Message(msgDone)
		m.Data = rec.value
		r.send(s, m)
	}
}

// check is the record that was read.
func (r *request) check() (record, error) {
	if r.Err != nil {
		return record{}, r.Err
	}
	rec, ok := readRecord(r.Data, r.in.salt, r.rec.off)
	if !ok || !rec.whole || rec.kind != kindPut || string(rec.key) != r.node.key {
		return rec, fmt.Errorf("%w: %s at %d", errDamaged, r.in.path, r.rec.off)
	}
	return rec, nil
}

// change takes a put or a delete.
func (s *shard) change(r *request) {
	r.rec = record{kind: kindPut, key: r.msg.Front, value: r.msg.Data}
	if r.do == msgPut {
		r.node = s.index.add(r.msg.Front)
	} else if r.node = s.index.find(r.msg.Front); r.node == nil {
		r.answer(s, msgNotFound)
		return
	} else {
		r.rec.kind, r.rec.value = kindDelete, nil
	}
	conn := r.due.Conn()
	r.node.pending++
	s.append(r)
	if s.active != nil {
		s.active.file.Hold(conn)
	}
	s.settle()
}

// append has a record written, now or once there is a segment for it.
func (s *shard) append(r *request) {
	r.rec.size = int64(headerSize + len(r.rec.key) + len(r.rec.value))
	if s.fits(r) {
		s.write(r)
		return
	}
	s.active = nil
	s.waiting = append(s.waiting, r)
}

func (s *shard) fits(r *request) bool {
	return s.active != nil && (s.active.end == headerSize || s.active.end+r.rec.size <= s.kv.segment)
}

// write has a record written behind all others, and made durable with those that are written
// at the same time.
func (s *shard) write(r *request) {
	g := s.active
	r.in, r.rec.off, r.rec.durable = g, g.end, s.durable
	g.end += r.rec.size
	r.head = appendHeader(r.head, &r.rec, g.salt)
	if r.pieces = append(r.pieces[:0], r.head); len(r.rec.value) > 0 {
		r.pieces = append(r.pieces, r.rec.value)
	}
	s.queue = append(s.queue, r)
	if err := g.file.WriteAtv(&r.FileOp, r.pieces, r.rec.off, control.Committed); err != nil {
		r.Err, r.ended = err, true
	}
}

// settle applies and acknowledges what is durable, in the order of the log: a record counts
// when it and all before it are durable. So a log that is cut off at the first record that
// is not there has all that was acknowledged.
func (s *shard) settle() {
	for len(s.queue) > 0 && s.queue[0].ended {
		r := s.queue[0]
		s.queue = s.queue[1:]
		if r.Err != nil && r.in.broken == nil { // it ends before r, and the next one says so
			s.log.Warn("a write failed: the log goes on in another segment", "file", r.in.path, "at", r.rec.off, "err", r.Err)
			r.in.broken, r.in.end, s.active = r.Err, r.rec.off, nil
		}
		if r.in.broken != nil {
			s.refuse(r, r.in.broken)
			continue
		}
		s.durable = positionOf(r.in.number, r.rec.off+r.rec.size)
		s.apply(r)
	}
	switch {
	case len(s.queue) > 0:
	case s.active == nil && (len(s.waiting) > 0 || s.marked != s.durable):
		s.roll()
	case s.marked != s.durable && !s.quiet.Armed():
		s.core.Arm(&s.quiet, markAfter)
	}
	s.compact()
}

// apply has a durable record count.
func (s *shard) apply(r *request) {
	switch n := r.node; r.do {
	case doMark:
		if s.leftover = nil; r.rec.off > 0 { // the first one is worth as much as any record
			s.marked = s.durable
		}
		r.finish(s)
	case doCopy:
		s.copyEnded(r, nil)
	case msgPut:
		n.pending--
		s.place(n, r.in, r.rec.off, r.rec.size)
		r.answer(s, msgDone)
	default:
		typ := msgDone
		if n.in == nil {
			typ = msgNotFound
		}
		n.pending--
		s.place(n, nil, 0, 0)
		r.answer(s, typ)
	}
}

// place says where the value of a key is. Without a segment there is none.
func (s *shard) place(n *node, in *segment, off, size int64) {
	s.live += size - n.size
	if n.in, n.off, n.size = in, off, size; in != nil {
		in.nodes = append(in.nodes, n)
	}
	s.index.forget(n)
}

// refuse ends a request whose record is not durable.
func (s *shard) refuse(r *request, err error) {
	switch {
	case r.do == doCopy:
		s.copyEnded(r, err)
	case r.do == doMark:
		if r.rec.off == 0 { // the segment has not begun
			s.segments = s.segments[:len(s.segments)-1]
			r.in.file.Close()
			s.rollFailed(err)
		}
		r.finish(s)
	default:
		r.node.pending--
		s.index.forget(r.node)
		r.fail(s, err)
	}
}
