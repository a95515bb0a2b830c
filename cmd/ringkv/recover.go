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

func (g *segment) damaged(off int64) error {
	return fmt.Errorf("%w: %s at %d", errDamaged, g.path, off)
}

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
		// What another process has written, and is not known to be durable, may be in memory
		// alone, even where a sync succeeds now, if one has failed before: it is written again.
		if err == nil && len(tail) > 0 {
			op := &control.FileOp{Done: func(_ *control.Core, op *control.FileOp) {
				if op.Err == nil {
					s.settle() // has a mark written
				}
				ended(op.Err)
			}}
			last := s.list[len(s.list)-1]
			err = last.file.WriteAt(op, tail, last.end-int64(len(tail)), control.Committed)
		}
		if err != nil || len(tail) == 0 {
			ended(err)
		}
	})
}

// readLog follows the names of the segments back from the youngest one, and then reads them
// all. The tail is what of the youngest one may not be durable.
func (s *shard) readLog() (tail []byte, err error) {
	files, err := s.findFiles()
	var next *segment
	for _, g := range slices.Backward(files) {
		switch {
		case next == nil: // nobody says where it ends
			s.number = g.number
		case g.number == next.before.segment():
			g.end = next.before.off()
		case g.number > next.before.segment(): // the log goes past it
			s.leftover = append(s.leftover, g.path)
			continue
		default:
			return nil, fmt.Errorf("%w: a segment before %s is missing", errDamaged, next.path)
		}
		s.list, next = append(s.list, g), g
	}
	slices.Reverse(s.list)
	for _, g := range s.list {
		if err == nil {
			tail, err = s.read(g)
		}
	}
	return tail, err
}

// findFiles finds the files of a shard, the oldest first, and opens none.
func (s *shard) findFiles() (files []*segment, err error) {
	disk, dir := s.kv.m.Disk(), s.kv.dir
	// What the names say must stay, and the last process may have ended before it was durable.
	if err := errors.Join(disk.MakeDir(dir), disk.SyncDir(filepath.Dir(dir)), disk.SyncDir(dir)); err != nil {
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

// read puts the records of a segment into the index. A value that is damaged is reported to
// those who read it.
func (s *shard) read(g *segment) (tail []byte, err error) {
	data, err := g.load(s.kv.m)
	if err != nil {
		return nil, err
	}
	records, sure, end := g.extent(readRecords(data, g.salt))
	if end < sure {
		return nil, g.damaged(end)
	}
	for _, r := range records {
		if !r.whole {
			s.log.Error("a value is damaged", "file", g.path, "at", r.off, "key", string(r.key))
		}
		s.place(s.find(r.key, true), g, &r, nil)
	}
	if rest := int64(len(data)) - end; g.end == 0 && rest > 0 {
		s.log.Warn("a torn tail is cut off", "file", g.path, "at", end, "bytes", rest)
	}
	if g.end, s.durable, s.marked = end, g.before, g.before; end > 0 {
		s.durable, s.marked = positionOf(g.number, end), positionOf(g.number, sure)
	}
	if end > sure { // else there may be less than that, of a value that is damaged
		tail = data[sure:end]
	}
	return tail, nil
}

// load opens a segment and reads the whole of it.
func (g *segment) load(m *control.Messenger) (data []byte, err error) {
	if g.opened, err = m.OpenFile(g.path, control.FileOptions{Write: true}); err != nil {
		return nil, err
	}
	data = make([]byte, g.opened.Size())
	if _, err = g.opened.ReadAt(data, 0); err != nil {
		err = errors.Join(err, g.opened.Close())
	}
	return data, err
}

// extent finds which records of a segment count. Up to sure all of it was acknowledged,
// behind that perhaps: there the youngest one, which has no end yet, goes on to the first
// record that is not whole.
func (g *segment) extent(all []record) (counts []record, sure, end int64) {
	sure = g.end
	for _, r := range all {
		if g.end == 0 && r.durable.segment() == g.number {
			sure = max(sure, r.durable.off())
		}
	}
	for i, r := range all {
		if r.off != end || end >= sure && (g.end > 0 || !r.whole) {
			return all[:i], sure, end
		}
		end += r.size
	}
	return all, sure, end
}
