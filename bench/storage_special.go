package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
)

// saturateReads is how many reads are under way of a disk that is busy.
const saturateReads = 64

// networkServers are those whose requests that need no disk are measured beside it.
var networkServers = []string{"io_uring", "epoll", "pool", "net"}

// measureNetwork measures requests that need no disk, while the server's disk is idle and
// while the server itself keeps it busy.
func (s *storageRun) measureNetwork(ctx context.Context, keep func(*report.StorageCell) error) error {
	if !s.disk.Direct || !slices.Contains(s.opt.storage.io, report.StorageDirect) {
		return nil
	}
	shapes := s.opt.shapes
	switch {
	case s.opt.storage.chosen:
	case s.opt.quick:
		shapes = []shape{{64, 1}}
	default: // requests that queue up on a connection are no question to the tail
		shapes = slices.DeleteFunc(slices.Clone(shapes), func(s shape) bool { return s.depth > 1 })
	}
	for _, t := range s.targets {
		if !slices.Contains(networkServers, t.name) || s.opt.quick && t.name != "io_uring" && t.name != "net" {
			continue
		}
		for _, shape := range shapes {
			c := &report.StorageCell{
				What: report.StorageNetwork, How: t.name, Base: report.ResultIdle, Load: report.Load{Conns: shape.conns, Depth: shape.depth},
			}
			s.progress.say("%s", c.Title())
			var all []prepared
			for name, reads := range map[string]int{report.ResultIdle: 0, report.ResultBusy: saturateReads} {
				p := prepared{storageTarget: *t}
				p.name, p.kind.tuned = name, false
				p.before = func(ctx context.Context) error {
					return s.ask(ctx, t.child, storageRequest{Saturate: &reads}, nil)
				}
				all = append(all, p)
			}
			slices.SortFunc(all, func(a, b prepared) int { return strings.Compare(b.name, a.name) }) // idle first
			err := s.compare(ctx, c, all, s.disk)
			idle := 0
			if e := s.ask(ctx, t.child, storageRequest{Saturate: &idle}, nil); err == nil {
				err = e
			}
			if err == nil {
				err = keep(c)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Title(), err)
			}
		}
	}
	return nil
}

// groupServers are those whose group commit is measured.
var groupServers = []string{"io_uring", "epoll"}

const (
	groupImage = 256 << 20 // size of the file system for it, in bytes
	groupFile  = 64 << 20
)

// measureGroups measures durable writes that share syncs against those that have one of
// their own, one after the other and all at once, on a file system whose syncs cost something.
func (s *storageRun) measureGroups(ctx context.Context, keep func(*report.StorageCell) error) error {
	shape := shape{16, 16}
	if s.opt.storage.chosen && !slices.Contains(s.opt.shapes, shape) {
		return nil
	}
	disk, where, err := loopDisk(ctx, s.opt.storage.dir)
	if err != nil {
		s.note("group commit is measured in %s, where a sync may cost little: %v", s.opt.storage.dir, err)
		if disk, err = storage.NewFile(s.opt.storage.dir, min(s.opt.storage.size, groupFile)); err != nil {
			return err
		}
	} else {
		s.note("group commit is measured in %s", where)
	}
	defer disk.Close()
	for _, v := range s.opt.storage.servers {
		if !slices.Contains(groupServers, v.name) || s.opt.quick && v.name != "io_uring" {
			continue
		}
		t, err := s.spawn(ctx, v, disk.Config())
		if err != nil {
			return err
		}
		for _, how := range []string{report.StorageDirect, report.StorageBuffered} {
			if how == report.StorageDirect && !disk.Direct || how == report.StorageBuffered && disk.Direct && s.opt.quick {
				continue
			}
			c := &report.StorageCell{
				What: report.StorageGroup, How: v.name + ", " + how, Base: report.ResultAlone,
				Load: report.Load{Size: 4 << 10, Conns: shape.conns, Depth: shape.depth},
			}
			s.progress.say("%s", c.Title())
			err := s.compare(ctx, c, groupResults(t, how), disk)
			if err == nil {
				err = keep(c)
			}
			if err != nil {
				t.child.Stop()
				return fmt.Errorf("%s: %w", c.Title(), err)
			}
		}
		t.child.Stop()
	}
	return nil
}

// groupResults are what a cell of group commit compares.
func groupResults(t *storageTarget, how string) (all []prepared) {
	flags := uint8(0)
	if how == report.StorageDirect {
		flags = blocks.Direct
	}
	for _, one := range []struct {
		name  string
		flags uint8
	}{{report.ResultAlone, blocks.Alone}, {report.ResultEach, 0}, {report.ResultGrouped, blocks.Grouped}} {
		p := prepared{storageTarget: *t, flags: flags | one.flags}
		p.name = one.name
		all = append(all, p)
	}
	return all
}

// loopDisk makes a file in a file system of its own, in a loop device over another file in
// dir: a sync of it is one of two file systems. Nothing of it is left when the last process
// that has opened the file ends.
func loopDisk(ctx context.Context, dir string) (f *storage.File, where string, err error) {
	base, err := os.MkdirTemp(dir, "ringmsgr-bench-")
	if err != nil {
		return nil, "", err
	}
	image, mounted := filepath.Join(base, "image"), filepath.Join(base, "mnt")
	defer func() {
		// The kernel keeps both until the file is closed.
		e := os.Remove(image)
		if errors.Is(e, os.ErrNotExist) {
			e = nil
		}
		err = errors.Join(err, e, os.RemoveAll(base))
	}()
	if err := os.Mkdir(mounted, 0o700); err != nil {
		return nil, "", err
	}
	if err := allocated(image, groupImage); err != nil {
		return nil, "", err
	}
	for _, args := range [][]string{
		// What is not written now the kernel writes later, beside what is measured.
		{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image},
		{"mount", "-o", "loop", image, mounted},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, "", fmt.Errorf("%s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
		}
	}
	defer func() { err = errors.Join(err, os.NewSyscallError("umount2", unix.Unmount(mounted, unix.MNT_DETACH))) }()
	f, err = storage.NewFile(mounted, groupFile)
	return f, "an ext4 in a loop device over a file in " + dir, err
}

// allocated makes a file of size bytes.
func allocated(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	return errors.Join(err, f.Close())
}
