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

// rolling is the change to the next segment.
type rolling struct {
	rolls    bool     // it is being made
	leftover []string // segments in which nothing was acknowledged
	trouble  error    // why there is no next segment
	retry    control.Timer
}

const retryAfter = time.Second

// segmentName has the salt of a segment, too: without it no record can be read.
const segmentName = "%dof%d-%08d-%08x.log"

// roll makes the next segment, once all records of the last one are applied or refused:
// where it ends is known then, and the first record of the new one says it. The file's name
// is durable before a record in it is.
func (s *shard) roll() {
	switch {
	case s.rolls || s.core.Gone():
		return
	case s.retry.Armed():
		s.refuseWaiting()
		return
	}
	s.rolls = true
	g := &segment{number: 1, salt: rand.Uint32()}
	if last := len(s.segments) - 1; last >= 0 {
		g.number = s.segments[last].number + 1
	}
	g.path = filepath.Join(s.kv.dir, fmt.Sprintf(segmentName, s.core.ID(), s.kv.cores, g.number, g.salt))
	before := s.leftover
	s.leftover = append(s.leftover, g.path)
	var d *control.DetachedFile
	var err error
	s.core.Offload(func() { d, err = s.kv.create(g.path, before) }, func(c *control.Core) {
		if err == nil {
			g.file, err = c.AttachFile(d)
		}
		if err != nil {
			s.rollFailed(err)
			return
		}
		s.begin(g)
	})
}

// create makes a file, and removes those before it in which nothing was acknowledged.
func (v *server) create(path string, before []string) (*control.DetachedFile, error) {
	for _, leftover := range before {
		if err := v.m.Disk().Remove(leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	d, err := v.m.OpenFile(path, control.FileOptions{Write: true, Create: true, Exclusive: true})
	if err != nil {
		return nil, err
	}
	if err := v.m.Disk().SyncDir(v.dir); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// begin appends to a new segment.
func (s *shard) begin(g *segment) {
	s.rolls, s.stuck = false, false
	s.segments, s.active = append(s.segments, g), g
	s.mark()
	waiting := s.waiting
	s.waiting = nil
	for _, r := range waiting {
		s.append(r)
	}
	s.choose()
	s.settle()
}

// mark writes a record that says what is durable.
func (s *shard) mark() {
	r := s.newRequest()
	r.do, r.rec = doMark, record{kind: kindMark, size: headerSize}
	s.write(r)
}

// rest has the disk know what is durable, when nothing was written for a moment.
func (s *shard) rest() {
	if s.active != nil && len(s.queue) == 0 && s.marked != s.durable {
		s.mark()
		s.settle()
	}
}

// rollFailed refuses all changes for a moment. A full disk is such a case: what it takes to
// have room again is for the operator to do, and reads go on.
func (s *shard) rollFailed(err error) {
	s.rolls, s.trouble = false, err
	s.log.Error("no new segment: changes are refused", "err", err, "retry", retryAfter)
	if !s.core.Gone() {
		s.core.Arm(&s.retry, retryAfter)
	}
	s.refuseWaiting()
}

func (s *shard) refuseWaiting() {
	waiting := s.waiting
	s.waiting = nil
	for _, r := range waiting {
		s.refuse(r, s.trouble)
	}
}
