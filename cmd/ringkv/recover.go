package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// After the last acknowledged record a file may end with any bytes, as writes overtake each
// other on their way to the disk. Such a torn tail is cut off; damage of acknowledged records
// is an error. Two names tell both apart: the name of each segment says where the segment
// before it ends, and the mark says how far the log was acknowledged (mark.go).

var errDamaged = errors.New("the log is damaged")

func (g *segment) damaged(off int64) error {
	return fmt.Errorf("%w: %s at %d", errDamaged, g.path, off)
}

// lost is the error of a log that lacks acknowledged records. It is nil if the operator accepts
// the loss.
func (s *shard) lost(format string, args ...any) error {
	err := fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
	if s.kv.acceptLoss {
		s.log.Warn("a loss is accepted", "err", err)
		return nil
	}
	return err
}

// findFiles makes the directory, and finds the segments of all shards, the oldest first. It
// opens no file. Files with other names do not belong to the store.
func (v *server) findFiles() error {
	disk := v.m.Disk()
	if err := errors.Join(disk.MakeDir(v.dir), disk.SyncDir(filepath.Dir(v.dir))); err != nil {
		return err
	}
	names, err := disk.List(v.dir) // in order, as numbers have the same length
	for _, name := range names {
		path := filepath.Join(v.dir, name)
		g, k, cores := kvformat.ParseName(name)
		switch {
		case cores == 0:
			v.log.Warn("a file that is not the store's is left alone", "file", path)
		case cores != len(v.shards):
			return fmt.Errorf("%s was written with --cores %d", v.dir, cores)
		case g != nil:
			v.shards[g.Core].found = append(v.shards[g.Core].found, g)
		default: // the last one holds
			v.shards[k.Core].known, v.shards[k.Core].marked = *k, path
		}
	}
	return err
}

// recover makes the index of a shard from its log, beside the core, and then calls ended. It also
// sets the mark, which syncs the directory: the last process may have ended before its file names
// were durable.
func (s *shard) recover(ended func(error)) {
	var tail []byte
	var err error
	written := func(err error) {
		if err != nil {
			ended(err)
			return
		}
		s.setMark(ended)
	}
	s.core.Offload(func() { tail, err = s.readLog() }, func(c *loop.Core) {
		for _, g := range s.list {
			if err == nil {
				g.file, err = c.AttachFile(g.opened)
			}
		}
		if err != nil || len(tail) == 0 {
			written(err)
			return
		}
		// Bytes of the last process that are not known to be durable may be in memory alone,
		// even if a sync succeeds now, because an earlier sync may have failed: they are
		// written again.
		op := &loop.FileOp{Done: func(_ *loop.Core, op *loop.FileOp) { written(op.Err) }}
		last := s.list[len(s.list)-1]
		if err := last.file.WriteAt(op, tail, last.End-int64(len(tail)), loop.Committed); err != nil {
			written(err)
		}
	})
}

// readLog finds the segments that count, and reads them. tail is the end of the youngest one that
// may not be durable.
func (s *shard) readLog() (tail []byte, err error) {
	if s.marked == "" {
		if len(s.found) > 0 { // it is durable before there is a segment
			err = s.lost("the mark of %s is missing", filepath.Join(s.kv.dir, s.found[0].Name()))
		}
		if err == nil {
			err = s.firstMark()
		}
		if err != nil {
			return nil, err
		}
	}
	counts, past, lost := kvformat.Chain(s.found, &s.known)
	s.number = s.known.Durable.Segment()
	for _, g := range s.found {
		s.number = max(s.number, g.Number)
	}
	for _, g := range counts {
		s.list = append(s.list, &segment{Segment: *g, path: filepath.Join(s.kv.dir, g.Name())})
	}
	for _, g := range past {
		s.leftover = append(s.leftover, filepath.Join(s.kv.dir, g.Name()))
	}
	for _, what := range lost {
		err = errors.Join(err, s.lost("in %s %s", s.kv.dir, what))
	}
	for i, g := range s.list {
		if err == nil {
			tail, err = s.read(g)
		}
		if i++; err == nil && i < len(s.list) && s.list[i].Before != kvformat.At(g.Number, g.End) { // a loss was accepted
			next := s.list[i]
			next.Before = kvformat.At(g.Number, g.End)
			err = s.rename(&next.path, next.Name())
		}
	}
	if last := len(s.list) - 1; err == nil && last >= 0 && s.list[last].End == 0 { // no record of it counts
		g := s.list[last]
		s.list, s.leftover = s.list[:last], append(s.leftover, g.path)
		err = g.opened.Close()
	}
	return tail, err
}

// read puts the records of a segment into the index. A damaged value stays in the index, and is
// an error for its readers.
func (s *shard) read(g *segment) (tail []byte, err error) {
	data, err := g.load(s.kv.m)
	if err != nil {
		return nil, err
	}
	records, end, sound := kvformat.ReadAll(data, g.Salt, g.Sure, g.End)
	if !sound {
		if err := s.lost("%s at %d, and %d bytes were acknowledged", g.path, end, g.Sure); err != nil {
			return nil, err
		}
	}
	for _, r := range records {
		if !r.Whole {
			s.log.Error("a value is damaged", "file", g.path, "at", r.Off, "key", string(r.Key))
		}
		s.place(s.find(r.Key, true), g, &r, nil)
	}
	if rest := int64(len(data)) - end; g.End == math.MaxInt64 && rest > 0 {
		s.log.Warn("a torn tail is cut off", "file", g.path, "at", end, "bytes", rest)
	}
	if g.End, s.durable = end, g.Before; end > 0 {
		s.durable = kvformat.At(g.Number, end)
	}
	if end > g.Sure { // there all are whole
		tail = data[g.Sure:end]
	}
	return tail, nil
}

func (g *segment) load(m *control.Messenger) (data []byte, err error) {
	if g.opened, err = m.OpenFile(g.path, loop.FileOptions{Write: true}); err != nil {
		return nil, err
	}
	data = make([]byte, g.opened.Size())
	if _, err = g.opened.ReadAt(data, 0); err != nil {
		err = errors.Join(err, g.opened.Close())
	}
	return data, err
}
