package main

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// shard is the part of the store on one core: a log, cut into segments, and an index of it.
// Only that core uses it, without a lock.
type shard struct {
	kv      *server
	core    *loop.Core
	log     *slog.Logger
	index   btree.Map[string, *entry]
	queue   []*request        // records on their way to the disk, in the order of the log
	waiting []*request        // for the next segment
	free    []*request        // that have ended
	durable kvformat.Position // all records below it are applied
	live    int64             // bytes of records that have a value
	marking
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

// find returns the entry of a key, and makes one if there is none and add says so.
func (s *shard) find(key []byte, add bool) *entry {
	n, _ := s.index.Get(string(key))
	if n == nil && add {
		n = &entry{key: string(key)}
		s.index.Set(n.key, n)
	}
	return n
}

// place makes the record of g the value of its key, or removes the value if the record deletes
// it, unless there is an error. An entry without value and pending records goes.
func (s *shard) place(n *entry, g *segment, rec *kvformat.Record, err error) {
	if err == nil {
		s.live -= n.size
		if n.in, n.off, n.size = g, rec.Off, rec.Size; rec.Deletes() {
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
	r.answer(control.NewMessage(kvformat.Done, nil, kvformat.Keys(r.keys[:min(maxScan, len(r.keys))])))
}

// get reads a value. It sees durable values only.
func (s *shard) get(r *request) {
	if r.entry = s.find(r.msg.Front, false); r.entry == nil || r.entry.in == nil {
		r.end(errNotFound)
		return
	}
	r.in, r.rec.Off = r.entry.in, r.entry.off
	if err := r.due.Conn().ReadReply(r.in.file, &r.FileOp, r.msg, int(r.entry.size), r.rec.Off); err != nil {
		r.end(err)
	}
}

// got answers with the value that was read, if it is undamaged. The buffer from the disk is
// sent.
func (s *shard) got(r *request) {
	if errors.Is(r.Err, loop.ErrFileClosed) && r.in != r.entry.in { // it was moved meanwhile
		s.get(r)
		return
	}
	if errors.Is(r.Err, control.ErrSessionLost) { // the client is gone
		r.end(r.Err)
		return
	}
	rec, ok := kvformat.Read(r.Data, r.in.Salt, r.rec.Off)
	if r.Err == nil && (!ok || !rec.Whole || string(rec.Key) != r.entry.key) {
		r.Err = r.in.damaged(r.rec.Off)
	}
	if r.Err != nil {
		s.log.Error("a value cannot be read", "key", r.entry.key, "err", r.Err)
		r.end(r.Err)
		return
	}
	m := control.FileMessage(&r.FileOp, kvformat.Done)
	m.Data = rec.Value
	m.SetDataCRC(rec.Sum) // it was just checked
	r.answer(m)
}

func (s *shard) change(r *request) {
	if r.msg.Type == kvformat.Delete && s.find(r.msg.Front, false) == nil {
		r.end(errNotFound)
		return
	}
	rec := kvformat.Record{Key: r.msg.Front}
	if r.msg.Type == kvformat.Put {
		rec.Value, rec.Sum = r.msg.Data, r.msg.DataCRC() // which came with it
	}
	s.write(r, rec)
	if s.active != nil {
		r.due.Conn().Hold(s.active.file)
	}
	s.settle()
}

// write appends a record to the log. A request without a message is the shard's own.
func (s *shard) write(r *request, rec kvformat.Record) {
	if r.rec, r.entry = rec, s.find(rec.Key, true); r.msg == nil {
		s.own++
	}
	r.entry.pending++
	s.append(r)
}

// append writes a record, and makes it durable together with the other records of the moment.
// Without room it waits for the next segment.
func (s *shard) append(r *request) {
	g, size := s.active, int64(kvformat.HeaderSize+len(r.rec.Key)+len(r.rec.Value))
	if g == nil || g.End > 0 && g.End+size > s.kv.segment {
		s.active, s.waiting = nil, append(s.waiting, r)
		return
	}
	r.in, r.rec.Off, r.rec.Size = g, g.End, size
	g.End += size
	r.head = r.rec.AppendHeader(r.head[:0], g.Salt)
	r.pieces = [2][]byte{r.head, r.rec.Value}
	s.queue = append(s.queue, r)
	if err := g.file.WriteAtv(&r.FileOp, r.pieces[:], r.rec.Off, loop.Committed); err != nil {
		r.Err = err
		s.core.Post(&loop.Task{Run: func(c *loop.Core) { r.moved(c, &r.FileOp) }})
	}
}

// settle applies and acknowledges durable records, in the order of the log: a record counts
// when it and all earlier records are durable. So a log that is cut at the first missing record
// has all acknowledged records.
func (s *shard) settle() {
	for len(s.queue) > 0 && s.queue[0].written {
		r := s.queue[0]
		s.queue = s.queue[1:]
		if r.Err != nil && r.in.broken == nil {
			s.breakOff(r)
		}
		if r.in.broken == nil {
			s.durable = kvformat.At(r.in.Number, r.rec.Off+r.rec.Size)
		}
		s.apply(r, r.in.broken)
	}
	if s.core.Gone() {
		s.refuse(loop.ErrStopped)
		return
	}
	s.compact()
	if len(s.queue) == 0 && s.active == nil && len(s.waiting) > 0 {
		s.roll()
	}
	s.keepMark()
}

// apply has a record count that is durable, or else ends its request with err.
func (s *shard) apply(r *request, err error) {
	n := r.entry
	n.pending--
	missing := n.in == nil && r.rec.Deletes()
	s.place(n, r.in, &r.rec, err)
	if r.msg == nil {
		s.own--
	}
	switch {
	case r.msg == nil && err != nil && s.victim != nil:
		s.giveUp(err)
	case missing && err == nil:
		err = errNotFound
	}
	r.end(err)
}
