package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// segment is one file of a log. End moves with each record.
type segment struct {
	kvformat.Segment
	path   string
	opened *loop.DetachedFile // until the core has it:
	file   *loop.File
	broken error // a write failed: it ends there
}

// segments are the files of a shard.
type segments struct {
	list     []*segment          // that count, the oldest first
	active   *segment            // the last one, if records can be appended
	number   uint32              // the highest that a name has had
	leftover []string            // files without records that count
	found    []*kvformat.Segment // at the start, the oldest first
	rolls    bool                // the next one is being made
	trouble  error               // why there is none
	retry    loop.Timer
}

// retryAfter is the time between two attempts to make a segment; meanwhile changes are refused.
const retryAfter = time.Second

// roll makes the next segment, once all records of the last one are applied or refused:
// where it ends is known then.
func (s *shard) roll() {
	switch {
	case s.rolls:
		return
	case s.retry.Armed():
		s.refuse(s.trouble)
		return
	}
	s.number++
	name := kvformat.Segment{Core: s.core.ID(), Cores: len(s.kv.shards), Number: s.number, Salt: s.kv.salt(), Before: s.durable}
	g := &segment{Segment: name, path: filepath.Join(s.kv.dir, name.Name())}
	old := s.leftover
	s.rolls, s.leftover = true, append(old, g.path)
	var err error
	s.core.Offload(func() { err = s.kv.create(g, old) }, func(c *loop.Core) {
		if s.rolls = false; err == nil {
			g.file, err = c.AttachFile(g.opened)
		}
		if err != nil {
			s.refuse(s.remedy(err))
			return
		}
		s.list, s.active, s.leftover = append(s.list, g), g, nil
		waiting := s.waiting
		s.waiting = nil
		for _, r := range waiting {
			s.append(r)
		}
		s.choose()
		s.settle()
	})
}

// create makes the file of a segment and its name durable. Then it removes old files without
// records that count: before that, their names alone may say where the log before them ends.
func (v *server) create(g *segment, old []string) (err error) {
	opt := loop.FileOptions{Write: true, Create: true, Exclusive: true}
	if g.opened, err = v.m.OpenFile(g.path, opt); err != nil {
		return err
	}
	if err = v.m.Disk().SyncDir(v.dir); err != nil {
		return errors.Join(err, g.opened.Close())
	}
	v.remove(old...)
	return nil
}

// remove removes files that do not count, if they exist. The next start removes a file that
// stays.
func (v *server) remove(paths ...string) {
	for _, path := range paths {
		if err := v.m.Disk().Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.log.Warn("a file in which nothing counts stays until the next start", "err", err)
		}
	}
}

// breakOff ends a segment before r, which could not be written.
func (s *shard) breakOff(r *request) {
	g := r.in
	s.log.Warn("a write failed: the log is cut", "file", g.path, "at", r.rec.Off, "err", r.Err)
	g.broken, g.End, s.active = s.remedy(r.Err), r.rec.Off, nil
	if g.End == 0 { // no record of it counts
		s.list, s.leftover = s.list[:len(s.list)-1], append(s.leftover, g.path)
		g.file.Close()
		s.refuse(g.broken)
	}
}

func (s *shard) remedy(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		const text = "%w on the disk of %s: a delete has to be written, too; changes go on once something else has made room"
		return fmt.Errorf(text, unix.ENOSPC, s.kv.dir)
	}
	return err
}

// refuse refuses all changes for a moment, as there is no segment for them. Reads go on.
func (s *shard) refuse(err error) {
	if s.trouble = err; !s.retry.Armed() && !s.core.Gone() {
		s.log.Error("no new segment: changes are refused", "err", err, "retry", retryAfter)
		s.core.Arm(&s.retry, s.core.Now()+retryAfter)
	}
	waiting := s.waiting
	s.waiting = nil
	for _, r := range waiting {
		s.apply(r, err)
	}
}

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
