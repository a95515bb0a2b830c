package main

import (
	"time"

	"github.com/ringmsgr/ringmsgr/control"
)

// compaction frees the oldest segment of a log when more than half of the log is of no use:
// values that count are appended to the log again, as if they had just been put, and the
// file is removed. As it is always the oldest one, a record of a delete has nothing left to
// delete, and goes with it. It runs beside everything else, a few records at a time.
type compaction struct {
	victim *segment // under way
	copies int      // values on their way
	stuck  bool     // not before the next segment
	again  control.Timer
}

const (
	maxCopies = 64
	maxLooks  = 4096 // at keys in one go
	lookAfter = time.Millisecond
)

// choose begins a compaction if it is due.
func (s *shard) choose() {
	total := int64(0)
	for _, g := range s.segments {
		total += g.end
	}
	if s.victim == nil && len(s.segments) > 1 && total-s.live > total/2 {
		s.victim = s.segments[0]
	}
}

// compact goes on with it. A value that is being overwritten is looked at again later: a
// copy behind the new value would undo it.
func (s *shard) compact() {
	g := s.victim
	if g == nil || s.stuck || g != s.segments[0] || s.core.Gone() {
		return
	}
	for looks := min(len(g.nodes), maxLooks); looks > 0 && s.copies < maxCopies && !s.stuck; looks-- {
		n := g.nodes[0]
		g.nodes = g.nodes[1:]
		switch {
		case n.in != g:
		case n.pending > 0:
			g.nodes = append(g.nodes, n)
		default:
			r := s.newRequest()
			r.do, r.node = doCopy, n
			n.pending++
			s.copies++
			if err := r.read(); err != nil {
				s.copyEnded(r, err)
			}
		}
	}
	switch {
	case s.copies > 0 || s.stuck:
	case len(g.nodes) > 0:
		s.core.Arm(&s.again, lookAfter)
	default:
		s.remove(g)
	}
}

// copied appends what was read, unless there is news of the key.
func (s *shard) copied(r *request) {
	rec, err := r.check()
	if err != nil || r.node.pending > 1 || r.node.in != r.in {
		s.copyEnded(r, err)
		return
	}
	r.msg = r.Message(doCopy) // keeps the buffer
	r.rec = record{kind: kindPut, key: rec.key, value: rec.value}
	s.append(r)
	s.settle()
}

// copyEnded takes what became of a copy. A value that was neither moved nor changed is
// looked at again; with an error not before there is another segment.
func (s *shard) copyEnded(r *request, err error) {
	n, g := r.node, s.victim
	n.pending--
	s.copies--
	if err != nil {
		s.log.Error("a segment cannot be compacted now", "file", g.path, "key", n.key, "err", err)
		s.stuck = true
	}
	if err == nil && r.msg != nil && n.in == g {
		s.place(n, r.in, r.rec.off, r.rec.size)
	} else {
		g.nodes = append(g.nodes, n)
		s.index.forget(n)
	}
	r.finish(s)
}

// remove removes a segment that nothing is left in. The next one is not looked at before
// that is durable: else a record of a delete could be gone, and what it deletes be back.
func (s *shard) remove(g *segment) {
	s.segments = s.segments[1:]
	g.file.Close() // who reads there reads again elsewhere
	var err error
	s.core.Offload(func() {
		if err = s.kv.m.Disk().Remove(g.path); err == nil {
			err = s.kv.m.Disk().SyncDir(s.kv.dir)
		}
	}, func(*control.Core) {
		if err != nil {
			s.log.Error("a segment cannot be removed: nothing is compacted before the next start", "file", g.path, "err", err)
			return
		}
		s.victim = nil
		s.choose()
		s.compact()
	})
}
