package main

import (
	"path/filepath"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// markAfter bounds the delay of the mark, without the time of its rename.
const markAfter = 100 * time.Millisecond

// marking is the mark of a shard: how far its log was acknowledged. Records below the mark that
// are missing at the start are lost; a missing record above it is a torn tail. The mark is the
// name of an empty file, which is renamed beside the core, at most every markAfter. No request
// waits for it.
type marking struct {
	known  kvformat.Mark
	marked string        // its path; empty: there is none
	marks  bool          // it is being renamed
	thens  []func(error) // for the next one
	timer  loop.Timer
}

// firstMark makes the mark of an empty log. The start makes it durable before there is a
// segment.
func (s *shard) firstMark() error {
	s.known = s.mayMark()
	s.marked = filepath.Join(s.kv.dir, s.known.Name())
	d, err := s.kv.m.OpenFile(s.marked, loop.FileOptions{Create: true})
	if err == nil {
		err = d.Close()
	}
	return err
}

// mayMark is the mark of this moment.
func (s *shard) mayMark() kvformat.Mark {
	oldest := s.durable.Segment() + 1
	if len(s.list) > 0 {
		oldest = s.list[0].Number
	}
	return kvformat.Mark{Core: s.core.ID(), Cores: len(s.kv.shards), Oldest: oldest, Durable: s.durable}
}

// setMark makes the mark of this moment durable, and then calls then.
func (s *shard) setMark(then func(error)) {
	s.thens = append(s.thens, then)
	s.nextMark()
}

func (s *shard) nextMark() {
	if s.marks || len(s.thens) == 0 {
		return
	}
	next, thens := s.mayMark(), s.thens
	s.marks, s.thens = true, nil
	var err error
	s.core.Offload(func() { err = s.rename(&s.marked, next.Name()) }, func(*loop.Core) {
		if s.marks = false; err == nil {
			s.known = next
		}
		for _, then := range thens {
			then(err)
		}
		s.nextMark()
	})
}

// keepMark sets the timer if the mark is too old.
func (s *shard) keepMark() {
	if !s.marks && !s.timer.Armed() && s.known != s.mayMark() {
		s.core.Arm(&s.timer, s.core.Now()+markAfter)
	}
}

// markSet is told of the mark that the timer has set.
func (s *shard) markSet(err error) {
	if err != nil && !s.core.Gone() {
		s.log.Warn("no mark: later losses may look like a torn tail", "err", err, "retry", retryAfter)
		s.core.Arm(&s.timer, s.core.Now()+retryAfter)
	}
	s.remove()
	s.settle()
}

// rename gives a file another name in the directory, durably.
func (s *shard) rename(path *string, name string) error {
	to, disk := filepath.Join(s.kv.dir, name), s.kv.m.Disk()
	if err := disk.Rename(*path, to); err != nil {
		return err
	}
	*path = to
	return disk.SyncDir(s.kv.dir)
}
