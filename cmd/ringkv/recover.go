package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringmsgr/ringmsgr/control"
)

// Where a log ends is not where its bytes end: behind the last record that was acknowledged
// may be anything, as writes overtake each other on their way to the disk. Such a tail is cut
// off; damage in what was acknowledged must not be taken for one. Two things tell them apart:
// the name of each segment says where the one before it ends, and each record says up to
// where everything was acknowledged when it was written. When nothing else is written for a
// moment, a mark is, so that the last record has one behind it, too. In that moment alone,
// damage in what was acknowledged last looks like a torn tail.

var errDamaged = errors.New("the log is damaged")

// recover makes the index of a shard from its log, beside the core, and then tells ended.
func (s *shard) recover(ended func(error)) {
	var tail []byte
	var err error
	s.core.Offload(func() { tail, err = s.readLog() }, func(c *control.Core) {
		for _, g := range s.list {
			if err == nil {
				g.file, err = c.AttachFile(g.opened)
			}
		}
		if err != nil || len(tail) == 0 {
			ended(err)
			return
		}
		// What another process has written, and is not known to be durable, may be in memory
		// alone, even where a sync succeeds now, if one has failed before: it is written again.
		op := &control.FileOp{Done: func(_ *control.Core, op *control.FileOp) {
			if op.Err == nil {
				s.settle()
			}
			ended(op.Err)
		}}
		last := s.list[len(s.list)-1]
		if err := last.file.WriteAt(op, tail, last.end-int64(len(tail)), control.Committed); err != nil {
			ended(err)
		}
	})
}

// readLog finds the segments, from the youngest on, and then reads them.
func (s *shard) readLog() (tail []byte, err error) {
	files, err := s.findFiles()
	var next *segment
	for _, g := range slices.Backward(files) {
		switch {
		case next == nil: // nobody says where it ends
			tail, err = s.cutOff(g)
		case g.number == next.before.segment():
			g.end = next.before.off()
		case g.number > next.before.segment(): // the log goes past it
			s.leftover = append(s.leftover, g.path)
			continue
		default:
			err = fmt.Errorf("%w: a segment before %s is missing", errDamaged, next.path)
		}
		if err != nil {
			return nil, err
		}
		if next = g; g.end > 0 {
			s.list = append(s.list, g)
		} else {
			s.leftover, err = append(s.leftover, g.path), g.opened.Close()
		}
	}
	slices.Reverse(s.list)
	for _, g := range s.list {
		if err == nil && g.found == nil {
			err = g.load(s.kv.m)
		}
		if err == nil {
			err = s.take(g)
		}
	}
	return tail, err
}

// findFiles finds the files of a shard, and opens none.
func (s *shard) findFiles() (files []*segment, err error) {
	disk, dir := s.kv.m.Disk(), s.kv.dir
	if err := errors.Join(disk.MakeDir(dir), disk.SyncDir(filepath.Dir(dir))); err != nil {
		return nil, err
	}
	names, err := disk.List(dir)
	for _, name := range names {
		var id, cores int
		g := &segment{path: filepath.Join(dir, name)}
		_, bad := fmt.Sscanf(name, segmentName, &id, &cores, &g.number, &g.salt, &g.before)
		switch {
		case bad != nil: // not ours
		case cores != len(s.kv.shards):
			return nil, fmt.Errorf("%s was written with --cores %d", dir, cores)
		case id == s.core.ID():
			files = append(files, g)
		}
	}
	return files, err // in order, as their numbers have the same length
}

// load opens a segment and reads the whole of it.
func (g *segment) load(m *control.Messenger) (err error) {
	if g.opened, err = m.OpenFile(g.path, control.FileOptions{Write: true}); err != nil {
		return err
	}
	data := make([]byte, g.opened.Size())
	if _, err := g.opened.ReadAt(data, 0); err != nil {
		return errors.Join(err, g.opened.Close())
	}
	g.found = look(data, g.salt)
	return nil
}

// cutOff finds where the youngest segment ends. The tail is what of it may not be durable.
func (s *shard) cutOff(g *segment) (tail []byte, err error) {
	if err := g.load(s.kv.m); err != nil {
		return nil, err
	}
	sure, end := g.found.end(g.number)
	if rest := int64(len(g.found.data)) - end; rest > 0 {
		s.log.Warn("a torn tail is cut off", "file", g.path, "at", end, "bytes", rest)
	}
	s.number, g.end, s.marked, s.durable = g.number, end, g.before, g.before
	if sure > 0 {
		s.marked = positionOf(g.number, sure)
	}
	if end > 0 {
		s.durable = positionOf(g.number, end)
	}
	return g.found.data[sure:end], nil
}

// take puts the records of a segment into the index. A value that is damaged is reported to
// those who read it.
func (s *shard) take(g *segment) error {
	if g.found.gap < g.end {
		return fmt.Errorf("%w: %s at %d", errDamaged, g.path, g.found.gap)
	}
	for _, r := range g.found.records {
		if r.off >= g.end {
			break
		}
		if !r.whole {
			s.log.Error("a value is damaged", "file", g.path, "at", r.off, "key", string(r.key))
		}
		if r.kind == kindPut {
			s.place(s.add(r.key), g, r.off, r.size)
		} else if n := s.find(r.key); n != nil {
			s.place(n, nil, 0, 0)
		}
	}
	g.found = nil
	return nil
}

// contents is what is in a segment.
type contents struct {
	data    []byte
	records []record
	gap     int64    // where the first thing begins that is no record
	durable position // the highest that a record knows
}

// look finds the records of a segment. Behind what is none it goes on with the next one.
func look(data []byte, salt uint32) *contents {
	size := int64(len(data))
	c := &contents{data: data, gap: size}
	for off := int64(0); off < size; {
		if r, ok := readRecord(data[off:], salt, off); ok {
			c.records, c.durable = append(c.records, r), max(c.durable, r.durable)
			off += r.size
		} else {
			c.gap = min(c.gap, off)
			off++
		}
	}
	return c
}

// end is where the youngest segment ends, whose number is given. Up to sure all of it was
// acknowledged, behind that perhaps.
func (c *contents) end(number uint32) (sure, end int64) {
	if c.durable.segment() == number {
		sure = c.durable.off()
	}
	end = sure
	for _, r := range c.records {
		if r.off == end && r.whole {
			end += r.size
		}
	}
	return sure, end
}
