package main

import (
	"slices"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Compaction frees the oldest segment of a log when more than half of the log is of no use: it
// appends the values of the segment that still count to the log again, and removes the file.
// Deletes of the oldest segment are dropped, as no older value is left. It takes a few records
// at a time; meanwhile the segment is in memory.

const (
	maxOwn   = 64   // values on their way
	maxLooks = 4096 // at records in one go
)

// compaction is the state of the compaction of a shard.
type compaction struct {
	compacts bool              // a segment is being read, compacted or removed
	victim   *segment          // that is compacted, or waits for the mark to be removed
	left     []kvformat.Record // of it, that were not looked at
	own      int               // copies on their way
}

// choose begins a compaction if it is due.
func (s *shard) choose() {
	total := int64(0)
	for _, g := range s.list {
		total += g.End
	}
	if s.compacts || s.own > 0 || len(s.list) < 2 || total-s.live <= total/2 || s.core.Gone() {
		return
	}
	g := *s.list[0] // its file is opened once more
	s.compacts = true
	var left []kvformat.Record
	var err error
	s.core.Offload(func() {
		data, failed := g.load(s.kv.m)
		if err = failed; err == nil {
			all, end, sound := kvformat.ReadAll(data, g.Salt, g.End, g.End)
			if left, err = all, g.opened.Close(); !sound {
				err = g.damaged(end)
			}
		}
	}, func(*loop.Core) {
		if s.victim, s.left = s.list[0], left; err != nil {
			s.giveUp(err)
		}
		s.settle()
	})
}

// giveUp ends a compaction until there is another segment.
func (s *shard) giveUp(err error) {
	s.log.Error("a segment is not compacted now", "err", err)
	s.compacts, s.victim, s.left = false, nil, nil
}

// compact copies the next records. A key that is being overwritten has to wait: a copy after
// the new value would undo it.
func (s *shard) compact() {
	for looks := 0; s.victim != nil && len(s.left) > 0 && s.own < maxOwn; looks++ {
		rec := s.left[0]
		n := s.find(rec.Key, false)
		switch {
		case looks == maxLooks:
			s.core.Post(&loop.Task{Run: func(*loop.Core) { s.settle() }})
			return
		case n == nil || n.in != s.victim || n.off != rec.Off: // it does not count
		case n.pending > 0:
			return
		case !rec.Whole:
			s.giveUp(s.victim.damaged(rec.Off))
			return
		default:
			s.write(s.newRequest(), kvformat.Record{Key: rec.Key, Value: rec.Value, Sum: rec.Sum})
		}
		s.left = s.left[1:]
	}
	if s.victim != nil && len(s.left) == 0 && s.own == 0 && slices.Contains(s.list, s.victim) {
		s.list = s.list[1:]
		s.victim.file.Close() // a pending read of the file repeats in the copy
		s.setMark(s.markSet)
	}
}

// remove removes the file of the victim once the mark says durably that it does not count:
// until then a start would miss it. After that a failed removal does no harm, nor a removal
// that a loss of power undoes.
func (s *shard) remove() {
	g := s.victim
	if g == nil || g.Number >= s.known.Oldest {
		return
	}
	s.victim = nil
	s.core.Offload(func() { s.kv.remove(g.path) }, func(*loop.Core) {
		s.compacts = false
		s.choose()
		s.settle()
	})
}
