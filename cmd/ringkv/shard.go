package main

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/ringmsgr/ringmsgr/control"
)

// shard is the part of the store that one core has: a log, cut into segments, and an index
// of it. Only that core touches it, so that there is no lock.
type shard struct {
	kv      *server
	core    *control.Core
	log     *slog.Logger
	index   btree.Map[string, *entry]
	queue   []*request // records on their way to the disk, in the order of the log
	waiting []*request // for the next segment
	free    []*request // that have ended
	durable position   // all records below it are applied
	marked  position   // of that, what the disk knows
	live    int64      // bytes of records that have a value
	quiet   control.Timer
	segments
	compaction
}

// entry is a key.
type entry struct {
	key       string
	in        *segment // nil: there is no value that was acknowledged
	off, size int64    // of the record
	pending   int      // records of the key that are on their way to the disk
}

// markAfter is how long nothing is written before a mark is.
const markAfter = 100 * time.Millisecond

// find returns the entry of a key, and makes one if there is none and add says so.
func (s *shard) find(key []byte, add bool) *entry {
	n, _ := s.index.Get(string(key))
	if n == nil && add {
		n = &entry{key: string(key)}
		s.index.Set(n.key, n)
	}
	return n
}

// place has a record of g count, if err is nil: the key has its value, or none any more. An
// entry without a value, which is about to get none, goes.
func (s *shard) place(n *entry, g *segment, rec *record, err error) {
	if err == nil {
		s.live -= n.size
		if n.in, n.off, n.size = g, rec.off, rec.size; rec.deletes() {
			n.in, n.size = nil, 0
		}
		s.live += n.size
	}
	if n.in == nil && n.pending == 0 {
		s.index.Delete(n.key)
	}
}

// scan takes the keys of one core, and goes on to the next one. The last one answers.
func (s *shard) scan(r *request) {
	prefix, most := string(r.msg.Front), len(r.keys)+maxScan
	s.index.Ascend(max(prefix, string(r.msg.Data)), func(key string, n *entry) bool {
		if n.in != nil && strings.HasPrefix(key, prefix) {
			r.keys = append(r.keys, key)
		}
		return strings.HasPrefix(key, prefix) && len(r.keys) < most
	})
	if next := s.core.ID() + 1; next < len(s.kv.shards) {
		r.shard = s.kv.shards[next]
		r.shard.core.Post(&r.Task)
		return
	}
	slices.Sort(r.keys)
	var list []byte
	for _, key := range r.keys[:min(maxScan, len(r.keys))] {
		rec := record{key: []byte(key), off: int64(len(list))}
		list = rec.appendHeader(list, 0)
	}
	r.answer(control.NewMessage(msgDone, nil, list))
}

// get reads a value. What is not durable yet is not seen.
func (s *shard) get(r *request) {
	if r.entry = s.find(r.msg.Front, false); r.entry == nil || r.entry.in == nil {
		r.end(errNotFound)
		return
	}
	r.in, r.rec.off = r.entry.in, r.entry.off
	if err := r.in.file.ReadReply(&r.FileOp, r.due.Conn(), r.msg, int(r.entry.size), r.rec.off); err != nil {
		r.end(err)
	}
}

// got answers with what was read, if it is what was written. The buffer that the disk has
// filled is what is sent.
func (s *shard) got(r *request) {
	if errors.Is(r.Err, control.ErrFileClosed) && r.in != r.entry.in { // it was moved meanwhile
		s.get(r)
		return
	}
	if errors.Is(r.Err, control.ErrSessionLost) { // nobody waits for it
		r.end(r.Err)
		return
	}
	rec, ok := readRecord(r.Data, r.in.salt, r.rec.off)
	if r.Err == nil && (!ok || !rec.whole || string(rec.key) != r.entry.key) {
		r.Err = r.in.damaged(r.rec.off)
	}
	if r.Err != nil {
		s.log.Error("a value cannot be read", "key", r.entry.key, "err", r.Err)
		r.end(r.Err)
		return
	}
	m := r.Message(msgDone)
	m.Data = rec.value
	m.SetDataCRC(rec.sum) // it was just checked
	r.answer(m)
}

// change takes a put or a delete.
func (s *shard) change(r *request) {
	if r.msg.Type == msgDelete && s.find(r.msg.Front, false) == nil {
		r.end(errNotFound)
		return
	}
	rec := record{key: r.msg.Front}
	if r.msg.Type == msgPut {
		rec.value, rec.sum = r.msg.Data, r.msg.DataCRC() // which came with it
	}
	s.write(r, rec)
	if s.active != nil {
		s.active.file.Hold(r.due.Conn())
	}
	s.settle()
}

// write has a record written behind all others. Without a message it is the shard's own.
func (s *shard) write(r *request, rec record) {
	if r.rec, r.entry = rec, s.find(rec.key, true); r.msg == nil {
		s.own++
	}
	r.entry.pending++
	s.append(r)
}

// append has a record written, and made durable with those that are written at the same
// time; or once there is a segment with room for it.
func (s *shard) append(r *request) {
	g, size := s.active, int64(headerSize+len(r.rec.key)+len(r.rec.value))
	if g == nil || g.end > 0 && g.end+size > s.kv.segment {
		s.active, s.waiting = nil, append(s.waiting, r)
		return
	}
	r.in, r.rec.off, r.rec.size, r.rec.durable = g, g.end, size, s.durable
	g.end += size
	r.head = r.rec.appendHeader(r.head[:0], g.salt)
	r.pieces = [2][]byte{r.head, r.rec.value}
	s.queue = append(s.queue, r)
	if err := g.file.WriteAtv(&r.FileOp, r.pieces[:], r.rec.off, control.Committed); err != nil {
		r.Err = err
		s.core.Do(func(c *control.Core) { r.moved(c, &r.FileOp) })
	}
}

// settle applies and acknowledges what is durable, in the order of the log: a record counts
// when it and all before it are durable. So a log that is cut off at the first record that
// is not there has all that was acknowledged.
func (s *shard) settle() {
	for len(s.queue) > 0 && s.queue[0].written {
		r := s.queue[0]
		s.queue = s.queue[1:]
		if r.Err != nil && r.in.broken == nil {
			s.breakOff(r)
		}
		if r.in.broken == nil {
			s.durable = positionOf(r.in.number, r.rec.off+r.rec.size)
		}
		s.apply(r, r.in.broken)
	}
	if s.core.Gone() {
		s.refuse(control.ErrCoreGone)
		return
	}
	s.compact()
	switch {
	case len(s.queue) > 0:
	case s.active == nil && len(s.waiting) > 0:
		s.roll()
	case s.marked != s.durable && !s.quiet.Armed():
		s.core.Arm(&s.quiet, markAfter)
	}
}

// apply has a record count that is durable, or else ends its request with err.
func (s *shard) apply(r *request, err error) {
	n := r.entry
	n.pending--
	missing := n.in == nil && r.rec.deletes()
	s.place(n, r.in, &r.rec, err)
	if r.msg == nil {
		s.own--
	}
	switch {
	case r.msg == nil && err != nil && s.victim != nil:
		s.giveUp(err)
	case len(n.key) == 0 && err == nil:
		s.marked = s.durable
	case missing && err == nil:
		err = errNotFound
	}
	r.end(err)
}

// mark has the disk know what is durable, when nothing was written for a moment.
func (s *shard) mark() {
	switch {
	case len(s.queue) > 0 || s.marked == s.durable:
	case s.active == nil:
		s.roll() // the name of the next segment says it
	default:
		s.write(s.newRequest(), record{})
		s.settle()
	}
}
