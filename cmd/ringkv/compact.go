package main

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control"
)

// Compaction frees the oldest segment of a log when more than half of the log is of no use:
// values that count are appended to the log again, as if they had just been put, and the
// file is removed. As it is always the oldest one, a record of a delete has nothing left to
// delete, and goes with it. It runs beside everything else, a few records at a time; the
// segment is in memory meanwhile.

const (
	maxCopies = 64   // values on their way
	maxLooks  = 4096 // at records in one go
)

// compaction is what a shard knows of it.
type compaction struct {
	victim *segment // nil: none
	loaded bool     // left is what has not been looked at
	left   []record
	copies int
}

// choose begins a compaction if it is due.
func (s *shard) choose() {
	total := int64(0)
	for _, g := range s.list {
		total += g.end
	}
	busy := s.victim != nil || s.copies > 0 || s.core.Gone()
	if busy || len(s.list) < 2 || total-s.live <= total/2 {
		return
	}
	g := s.list[0]
	s.victim = g
	var err error
	s.core.Offload(func() {
		if err = g.load(s.kv.m); err == nil {
			err = g.opened.Close()
		}
	}, func(*control.Core) {
		if err != nil {
			s.giveUp(err)
			return
		}
		s.left, s.loaded, g.found = g.found.records, true, nil
		s.settle()
	})
}

// giveUp ends a compaction until there is another segment.
func (s *shard) giveUp(err error) {
	s.log.Error("a segment is not compacted now", "err", err)
	s.victim, s.left, s.loaded = nil, nil, false
}

// compact goes on with it. Where a value is being overwritten it waits for that: a copy
// behind the new value would undo it.
func (s *shard) compact() {
	for looks := 0; len(s.left) > 0 && s.copies < maxCopies && !s.core.Gone(); looks++ {
		rec := s.left[0]
		n := s.find(rec.key)
		switch {
		case looks == maxLooks:
			s.core.Do(func(*control.Core) { s.settle() })
			return
		case n == nil || n.in != s.victim || n.off != rec.off: // it does not count
		case n.pending > 0:
			return
		case !rec.whole:
			s.giveUp(fmt.Errorf("%w: %s at %d", errDamaged, s.victim.path, rec.off))
			return
		default:
			r := s.newRequest()
			r.do, r.entry = doCopy, n
			r.rec = record{kind: kindPut, key: rec.key, value: rec.value}
			n.pending++
			s.copies++
			s.append(r)
		}
		s.left = s.left[1:]
	}
	if s.loaded && len(s.left) == 0 && s.copies == 0 && !s.core.Gone() {
		s.remove(s.victim)
	}
}

// remove removes a segment that nothing is left in. The next one is not looked at before
// that is durable: else a record of a delete could be gone, and what it deletes be back.
func (s *shard) remove(g *segment) {
	s.list, s.loaded, s.left = s.list[1:], false, nil
	g.file.Close() // who reads there reads again elsewhere
	var err error
	s.core.Offload(func() {
		if err = s.kv.m.Disk().Remove(g.path); err == nil {
			err = s.kv.m.Disk().SyncDir(s.kv.dir)
		}
	}, func(*control.Core) {
		if err != nil {
			s.log.Error("nothing is compacted before the next start", "err", err)
			return
		}
		s.victim = nil
		s.choose()
		s.settle()
	})
}
