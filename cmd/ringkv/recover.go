package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringmsgr/ringmsgr/control"
)

// recover makes the index of a shard from its log. It runs on a goroutine, which waits for
// the core; until it is done the core does nothing else with the shard.
func (s *shard) recover() error {
	if err := s.list(); err != nil {
		return err
	}
	var last *segment
	var found *contents // in last
	for i, g := range s.segments {
		c, size, err := s.load(g)
		if err != nil {
			return err
		}
		if last != nil {
			mark, ok := c.mark()
			if !ok && i == len(s.segments)-1 && c.durable.segment() != g.number {
				s.log.Info("a segment that never began is removed", "file", g.path)
				s.leftover, s.segments = append(s.leftover, g.path), s.segments[:i]
				break
			}
			if !ok || mark.segment() != last.number {
				return fmt.Errorf("%s: %w at 0", g.path, errDamaged)
			}
			if err := s.take(last, found, mark.off()); err != nil {
				return err
			}
		}
		last, found, g.end = g, c, size
	}
	if last == nil {
		return nil
	}
	sure, end := found.end(last.number)
	if end < last.end {
		s.log.Warn("a torn tail is cut off", "file", last.path, "at", end, "bytes", last.end-end)
	}
	s.marked, s.durable = positionOf(last.number, sure), positionOf(last.number, end)
	if sure > 0 && end-sure == headerSize { // the mark that says sure
		s.marked = s.durable
	}
	if err := s.take(last, found, end); err != nil {
		return err
	}
	return s.keep(last, sure, end)
}

// list finds the segments, in order.
func (s *shard) list() error {
	var names []string
	err := s.offload(func() (err error) { names, err = s.kv.m.Disk().List(s.kv.dir); return err })
	for _, name := range names {
		var id, cores int
		g := &segment{path: filepath.Join(s.kv.dir, name)}
		if _, err := fmt.Sscanf(name, segmentName, &id, &cores, &g.number, &g.salt); err != nil {
			continue // not ours
		}
		if cores != s.kv.cores {
			return fmt.Errorf("%s was written with --cores %d", s.kv.dir, cores)
		}
		if id == s.core.ID() {
			s.segments = append(s.segments, g)
		}
	}
	slices.SortFunc(s.segments, func(a, b *segment) int { return int(int64(a.number) - int64(b.number)) })
	return err
}

// load opens a segment and reads the whole of it.
func (s *shard) load(g *segment) (c *contents, size int64, err error) {
	var d *control.DetachedFile
	err = s.offload(func() (err error) {
		d, err = s.kv.m.OpenFile(g.path, control.FileOptions{Write: true})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	data := make([]byte, d.Size())
	err = s.wait(func(c *control.Core, op *control.FileOp) (err error) {
		if g.file, err = c.AttachFile(d); err != nil {
			return err
		}
		return g.file.ReadAt(op, data, 0)
	})
	return scan(data, g.salt), d.Size(), err
}

// take puts the records of a segment up to end into the index.
func (s *shard) take(g *segment, c *contents, end int64) error {
	if err := c.check(end); err != nil {
		return fmt.Errorf("%s: %w", g.path, err)
	}
	g.end = end
	for _, r := range c.records {
		if r.off >= end {
			break
		}
		if !r.whole {
			s.log.Error("a value is damaged: who reads it gets an error", "file", g.path, "at", r.off, "key", string(r.key))
		}
		switch r.kind {
		case kindPut:
			s.place(s.index.add(r.key), g, r.off, r.size)
		case kindDelete:
			if n := s.index.find(r.key); n != nil {
				s.place(n, nil, 0, 0)
			}
		}
	}
	return nil
}

// keep makes durable what a process has left behind that is gone. It was read, and may be in
// memory alone, even where a sync succeeds now, if one has failed before: it is written again.
func (s *shard) keep(g *segment, from, end int64) error {
	p := make([]byte, end-from)
	err := s.wait(func(_ *control.Core, op *control.FileOp) error { return g.file.ReadAt(op, p, from) })
	if err != nil {
		return err
	}
	return s.wait(func(_ *control.Core, op *control.FileOp) error { return g.file.WriteAt(op, p, from, control.Committed) })
}

// call runs f on the core, and waits until it is done.
func (s *shard) call(f func(c *control.Core, done func(error))) error {
	ended := make(chan error, 1)
	s.core.Do(func(c *control.Core) { f(c, func(err error) { ended <- err }) })
	return <-ended
}

// offload runs f where it may block.
func (s *shard) offload(f func() error) error {
	return s.call(func(c *control.Core, done func(error)) {
		var err error
		c.Offload(func() { err = f() }, func(*control.Core) { done(err) })
	})
}

// wait waits for a request on a file.
func (s *shard) wait(ask func(c *control.Core, op *control.FileOp) error) error {
	return s.call(func(c *control.Core, done func(error)) {
		if err := ask(c, &control.FileOp{Done: func(_ *control.Core, op *control.FileOp) { done(op.Err) }}); err != nil {
			done(err)
		}
	})
}
