package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
	"github.com/ringmsgr/ringmsgr/bench/internal/syscount"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
)

// storageTarget is a storage server process under test.
type storageTarget struct {
	target // so that it is loaded as an echo server is
	kind   storageVariant
}

// storageRun measures all cells of --storage.
type storageRun struct {
	*runner
	disk     *storage.File
	fio      stock
	targets  []*storageTarget
	best     map[tuning]int // GOMAXPROCS, as the last cell has found it
	deadline time.Time      // zero: none
	spent    spans
}

// measureStorage compares storage servers.
func measureStorage(ctx context.Context, opt options, stdout, stderr io.Writer) (err error) {
	s := &storageRun{runner: newRunner(opt, stderr), best: map[tuning]int{}, spent: spans{}}
	defer s.stop()
	// A server that waits for its disk may take long until it answers at all.
	s.plan.slice.WindowMax = opt.slice + extendMax
	s.plan.slice.Warm = min(s.plan.slice.Warm, storageWarm)
	if opt.storage.total > 0 {
		s.deadline = time.Now().Add(opt.storage.total)
	}
	f := &s.file
	f.Base, f.Width = "", columns(stdout) // no echo servers are compared
	f.Storage = &report.Storage{Dir: opt.storage.dir, FileSystem: fileSystem(opt.storage.dir), Size: opt.storage.size}
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := errors.Join(f.WriteHead(stdout), f.WriteStorageHead(stdout)); err != nil {
		return err
	}
	failure := s.measureCells(ctx, stdout)
	s.stop()
	if len(f.Storage.Cells) > 0 {
		if err := f.WriteStorageSummary(stdout); err != nil {
			return err
		}
	}
	return errors.Join(failure, s.save())
}

// start makes the file and starts all processes.
func (s *storageRun) start(ctx context.Context) (err error) {
	if s.counter, s.why = openCounter(); s.why != nil {
		s.note("system calls are counted by the servers that count their own: %v", s.why)
	}
	opt := &s.opt.storage
	s.progress.say("writing a file of %d MiB in %s", opt.size>>20, opt.dir)
	if s.disk, err = storage.NewFile(opt.dir, opt.size); err != nil {
		return err
	}
	if !s.disk.Direct {
		s.note("nothing is measured with direct I/O: %s (%s) has none: %v. --storage-dir names another directory", opt.dir, s.file.Storage.FileSystem, s.disk.Why)
	}
	s.spawner = proc.NewSpawner()
	for _, v := range opt.servers {
		t, err := s.spawn(ctx, v, s.disk.Config())
		if err != nil {
			return err
		}
		s.targets = append(s.targets, t)
		s.file.Storage.Servers = append(s.file.Storage.Servers, report.Server{Name: v.name, About: v.about, Settings: t.hello.Settings})
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var hello struct{}
	s.client, err = s.spawner.Start(ctx, "client", exe, []string{child.Command, "storage-client"}, s.stderr, &hello)
	return err
}

// spawn starts a server.
func (s *storageRun) spawn(ctx context.Context, v storageVariant, cfg storage.Config) (*storageTarget, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	config, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	s.progress.say("starting storage server %s", v.name)
	t := &storageTarget{kind: v}
	t.name = v.name
	t.child, err = s.spawner.Start(ctx, v.name, exe, []string{child.Command, "storage-server", v.name, string(config)}, s.stderr, &t.hello)
	if err != nil {
		return nil, err
	}
	t.pid = t.child.PID()
	return t, nil
}

// stop ends all processes. It may be called twice.
func (s *storageRun) stop() {
	for _, t := range s.targets {
		t.child.Stop()
	}
	s.targets = nil
	s.runner.stop()
	s.fio.close()
	if s.disk != nil {
		s.disk.Close()
		s.disk = nil
	}
}

// measureCells measures one cell after the other, and prints each.
func (s *storageRun) measureCells(ctx context.Context, stdout io.Writer) error {
	cells := s.opt.storageCells()
	if !s.disk.Direct {
		cells = slices.DeleteFunc(cells, func(c report.StorageCell) bool { return c.How == report.StorageDirect })
	}
	// What compares a server with itself comes first: it is short, and few cells are of it.
	for _, special := range []func(context.Context, func(*report.StorageCell) error) error{s.measureNetwork, s.measureGroups} {
		if err := special(ctx, func(c *report.StorageCell) error { return s.keep(stdout, c) }); err != nil {
			return err
		}
	}
	var why error
	if s.fio.program, why = findFio(); why != nil {
		s.note("NO STOCK PROGRAM FOR SCALE: fio is not there (%v). Install it, and every cell with direct I/O has a line of it", why)
	}
	s.fio.dir = s.opt.storage.dir
	for i, c := range cells {
		if !s.deadline.IsZero() && time.Now().Add(s.spent.expect(&c)).After(s.deadline) {
			s.note("no time was left for %d of %d cells, from %s on; --rounds %d measures all of them", len(cells)-i, len(cells), c.Title(), s.opt.rounds)
			return nil
		}
		s.progress.say("[%d/%d] %s", i+1, len(cells), c.Title())
		file := s.fioFile(&c)
		began := time.Now()
		err := s.measureCell(ctx, &c)
		if err == nil && s.fio.takesPart(&c) {
			if c.Fio, err = s.fio.run(ctx, file, &c); err != nil && ctx.Err() == nil {
				s.notFio(&c, err)
				err = nil
			}
		}
		if err == nil {
			err = s.keep(stdout, &c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Title(), err)
		}
		s.spent.add(&c, time.Since(began))
	}
	return nil
}

// fioFile is what fio works on in a cell. To make it takes longer than most of what a cell does.
func (s *storageRun) fioFile(c *report.StorageCell) storage.Config {
	if !s.fio.takesPart(c) {
		return storage.Config{}
	}
	file, err := s.fio.on(c, s.disk.Config())
	if err != nil {
		s.notFio(c, err)
	}
	return file
}

// notFio says why there is no line of fio in a cell, and in those that do the same.
func (s *storageRun) notFio(c *report.StorageCell, err error) {
	s.note("fio: nothing of %s: %v", c.What, err)
	s.fio.fail(c)
}

// keep prints a cell that is complete.
func (s *storageRun) keep(stdout io.Writer, c *report.StorageCell) error {
	c.Compute()
	s.progress.clear()
	s.file.Storage.Cells = append(s.file.Storage.Cells, *c)
	return s.file.WriteStorageCell(stdout, c)
}

// prepared is one that takes part in a cell, and what is done before each of its slices.
type prepared struct {
	storageTarget       // its name is that of the result
	flags         uint8 // of its requests, besides those of the cell
	before        func(ctx context.Context) error
}

// measureCell measures one cell of the grid.
func (s *storageRun) measureCell(ctx context.Context, c *report.StorageCell) error {
	if c.How == report.StorageCached || c.How == report.StorageBuffered {
		if err := s.disk.Remember(); err != nil {
			return err
		}
	}
	var all []prepared
	for _, t := range s.targets {
		if !t.kind.takesPart(c) {
			continue
		}
		all = append(all, prepared{storageTarget: *t, before: func(context.Context) error {
			if c.How == report.StorageUncached {
				return s.disk.Forget()
			}
			return nil
		}})
	}
	return s.compare(ctx, c, all, s.disk)
}

// compare loads all of them in turn, round by round.
func (s *storageRun) compare(ctx context.Context, c *report.StorageCell, all []prepared, disk *storage.File) error {
	c.Results = make([]report.StorageResult, len(all))
	for i, p := range all {
		c.Results[i].Result = report.Result{Server: p.name, Latency: latency.New()}
		if err := s.ask(ctx, s.client, storageClientRequest{Server: p.name, Open: p.options(c, disk.Config())}, nil); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for i, p := range all {
		if !p.kind.tuned {
			continue
		}
		if err := s.tune(ctx, &c.Results[i], p, c); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for round := range s.opt.rounds {
		s.progress.round(round+1, s.opt.rounds)
		for place := range all {
			i := place
			if round%2 == 1 {
				i = len(all) - 1 - place
			}
			before, counted := disk.Flushes()
			res, err := s.slice(ctx, all[i], s.plan.slice)
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			if after, _ := disk.Flushes(); counted && c.What == report.StorageGroup {
				c.Results[i].Flushes = append(c.Results[i].Flushes, float64(after-before)/float64(res.Total))
			}
			one := sample(res, c.Load.Size)
			one.Round, one.Order = round+1, place+1
			c.Results[i].Samples = append(c.Results[i].Samples, one)
			c.Results[i].Latency.Add(res.Latency)
		}
	}
	for i, p := range all {
		if err := s.count(ctx, &c.Results[i], p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := s.ask(ctx, s.client, storageClientRequest{Server: p.name, Close: true}, nil); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// options are those of the load of a cell.
func (p *prepared) options(c *report.StorageCell, cfg storage.Config) *load.StorageOptions {
	o := &load.StorageOptions{Kind: blocks.Read, Flags: p.flags, Path: cfg.Path, File: cfg.Size}
	o.Addr, o.Nonce, o.PID, o.Raw = p.hello.Addr, p.hello.Nonce, p.pid, p.kind.raw
	o.Conns, o.Depth, o.Size = c.Load.Conns, c.Load.Depth, c.Load.Size
	switch c.What {
	case report.StorageNetwork:
		o.Kind = blocks.Ping
	case report.StorageGroup:
		o.Kind = blocks.Write
	case report.StorageWrite:
		o.Kind = blocks.Write
		if c.How != report.StorageDirect {
			o.Flags |= blocks.Grouped // a sync of its own is what direct I/O is fast with
		}
	}
	if c.How == report.StorageDirect {
		o.Flags |= blocks.Direct
	}
	return o
}

// slice loads one server for one slice.
func (s *storageRun) slice(ctx context.Context, p prepared, slice load.Slice) (load.Result, error) {
	if p.before != nil {
		if err := p.before(ctx); err != nil {
			return load.Result{}, err
		}
	}
	return s.run(ctx, &p.target, slice)
}

// count counts system calls and allocations in a slice of its own, because that costs time:
// behind the last round, when nothing is allocated any more because it is the first of its
// kind.
func (s *storageRun) count(ctx context.Context, r *report.StorageResult, p prepared) error {
	var ask [3]storageStats
	for i := range 2 { // the second one says what asking takes
		if err := s.ask(ctx, p.child, storageRequest{}, &ask[i]); err != nil {
			return err
		}
	}
	if p.before != nil {
		if err := p.before(ctx); err != nil {
			return err
		}
	}
	count := callCount{r: s.runner, t: &p.target}
	if s.counter != nil {
		var err error
		if count.outside, err = s.counter(p.pid); err != nil {
			return err
		}
		defer count.close()
	}
	slice := s.plan.slice
	slice.WarmMax, slice.WindowMax = slice.Warm, slice.Window // no need to wait for a steady state
	res, err := s.run(ctx, &p.target, slice)
	if err != nil {
		return err
	}
	var calls uint64
	if s.counter != nil {
		if calls, err = count.outside.Read(); err != nil {
			return err
		}
	}
	if err := s.ask(ctx, p.child, storageRequest{}, &ask[2]); err != nil {
		return err
	}
	switch {
	case s.counter != nil:
		r.Syscalls.How = "counted by the " + syscount.Method
		r.Syscalls.PerMessage = []float64{float64(calls) / float64(res.Total)}
	case ask[1].Syscalls != nil && ask[2].Syscalls != nil:
		r.Syscalls.How = "counted by the server itself"
		r.Syscalls.PerMessage = []float64{float64(*ask[2].Syscalls-*ask[1].Syscalls) / float64(res.Total)}
	default:
		r.Syscalls.How = fmt.Sprintf("not known, it does not count them and %v", s.why)
	}
	allocs := float64(ask[2].Mallocs-ask[1].Mallocs) - float64(ask[1].Mallocs-ask[0].Mallocs)
	r.Allocs = []float64{max(0, allocs) / float64(res.Total)}
	return nil
}
