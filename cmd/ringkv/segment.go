package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
)

// segment is one file of a log.
type segment struct {
	path         string
	number, salt uint32
	before       position // where the log ends that the segment goes on with
	opened       *control.DetachedFile
	file         *control.File // opened, once the core has it
	end          int64
	broken       error // a write failed: it ends there
}

// A name says all that must be known of a segment before it is read: the core and how many
// there are, number, salt and before. So where a segment ends is durable when the next one
// has a name, and one that the next one goes past holds nothing that counts.
const segmentName = "%dof%d-%08x-%08x-%016x.log"

// segments are the files of a shard.
type segments struct {
	list     []*segment // oldest first
	active   *segment   // the last one, if records can be appended
	number   uint32     // the highest that a name has had
	leftover []string   // files in which nothing counts
	rolls    bool       // the next one is being made
	trouble  error      // why there is none
	retry    control.Timer
}

// retryAfter is how long changes are refused before the next segment is tried again.
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
	s.rolls = true
	g := &segment{number: s.number, salt: rand.Uint32(), before: s.durable}
	name := fmt.Sprintf(segmentName, s.core.ID(), len(s.kv.shards), g.number, g.salt, g.before)
	g.path = filepath.Join(s.kv.dir, name)
	old := s.leftover
	s.leftover = append(old, g.path)
	var err error
	s.core.Offload(func() { err = s.kv.create(g, old) }, func(c *control.Core) {
		if s.rolls = false; err == nil {
			g.file, err = c.AttachFile(g.opened)
		}
		if err != nil {
			s.refuse(err)
			return
		}
		s.list, s.active, s.leftover, s.marked = append(s.list, g), g, nil, s.durable
		waiting := s.waiting
		s.waiting = nil
		for _, r := range waiting {
			s.append(r)
		}
		s.choose()
		s.settle()
	})
}

// create makes the file of a segment, and its name durable, and then removes files in which
// nothing counts. In the other order a kill between the two would leave nobody who says
// where the log before them ends.
func (v *server) create(g *segment, old []string) (err error) {
	opt := control.FileOptions{Write: true, Create: true, Exclusive: true}
	if g.opened, err = v.m.OpenFile(g.path, opt); err != nil {
		return err
	}
	if err = v.m.Disk().SyncDir(v.dir); err == nil {
		err = v.remove(old...)
	}
	if err != nil {
		err = errors.Join(err, g.opened.Close())
	}
	return err
}

// remove removes files, each durably before the next one.
func (v *server) remove(paths ...string) error {
	for _, path := range paths {
		if err := v.m.Disk().Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := v.m.Disk().SyncDir(v.dir); err != nil {
			return err
		}
	}
	return nil
}

// breakOff ends a segment before r, which could not be written.
func (s *shard) breakOff(r *request) {
	g := r.in
	s.log.Warn("a write failed: the log is cut", "file", g.path, "at", r.rec.off, "err", r.Err)
	g.broken, g.end, s.active = r.Err, r.rec.off, nil
	if g.end == 0 { // nothing counts in it
		s.list, s.leftover = s.list[:len(s.list)-1], append(s.leftover, g.path)
		g.file.Close()
		s.refuse(r.Err)
	}
}

// refuse refuses all changes for a moment, as there is no segment for them. A full disk is
// such a case: what it takes to have room again is for the operator to do, and reads go on.
func (s *shard) refuse(err error) {
	if s.trouble = err; !s.retry.Armed() && !s.core.Gone() {
		s.log.Error("no new segment: changes are refused", "err", err, "retry", retryAfter)
		s.core.Arm(&s.retry, retryAfter)
	}
	waiting := s.waiting
	s.waiting = nil
	for _, r := range waiting {
		s.apply(r, err)
	}
}

// Compaction frees the oldest segment of a log when more than half of the log is of no use:
// values that count are appended to the log again, as if they had just been put, and the
// file is removed. As it is always the oldest one, a record of a delete has nothing left to
// delete, and goes with it. It runs beside everything else, a few records at a time; the
// segment is in memory meanwhile.

const (
	maxOwn   = 64   // values on their way
	maxLooks = 4096 // at records in one go
)

// compaction is what a shard knows of it.
type compaction struct {
	compacts bool     // a segment is being read, compacted or removed
	victim   *segment // that is compacted
	left     []record // of it, that were not looked at
	own      int      // records of the shard itself, copies and marks, on their way
}

// choose begins a compaction if it is due.
func (s *shard) choose() {
	total := int64(0)
	for _, g := range s.list {
		total += g.end
	}
	if s.compacts || s.own > 0 || len(s.list) < 2 || total-s.live <= total/2 || s.core.Gone() {
		return
	}
	g := *s.list[0] // its file is opened once more
	s.compacts = true
	var left []record
	var err error
	s.core.Offload(func() {
		var data []byte
		if data, err = g.load(s.kv.m); err == nil {
			left, err = readRecords(data, g.salt), g.opened.Close()
		}
	}, func(*control.Core) {
		if err != nil {
			s.giveUp(err)
			return
		}
		s.victim, s.left = s.list[0], left
		s.settle()
	})
}

// giveUp ends a compaction until there is another segment.
func (s *shard) giveUp(err error) {
	s.log.Error("a segment is not compacted now", "err", err)
	s.compacts, s.victim, s.left = false, nil, nil
}

// compact goes on with it. Where a value is being overwritten it waits for that: a copy
// behind the new value would undo it.
func (s *shard) compact() {
	for looks := 0; s.victim != nil && len(s.left) > 0 && s.own < maxOwn; looks++ {
		rec := s.left[0]
		n := s.find(rec.key, false)
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
			s.writeOwn(record{key: rec.key, value: rec.value})
		}
		s.left = s.left[1:]
	}
	if s.victim != nil && len(s.left) == 0 && s.own == 0 {
		s.remove()
	}
}

// remove removes the victim, in which nothing is left. The next one is not looked at before
// that is durable: else a record of a delete could be gone, and what it deletes be back.
func (s *shard) remove() {
	g := s.victim
	s.victim, s.list = nil, s.list[1:]
	g.file.Close() // who reads there reads again elsewhere
	var err error
	s.core.Offload(func() { err = s.kv.remove(g.path) }, func(*control.Core) {
		if err != nil {
			s.log.Error("nothing is compacted before the next start", "err", err)
			return
		}
		s.compacts = false
		s.choose()
		s.settle()
	})
}
