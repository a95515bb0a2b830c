package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
)

// The operations of --storage: their kind, with the page cache or without.
const (
	writeDirect   = "durable write, direct"
	writeBuffered = "durable write, buffered"
	readDirect    = "read, direct"
	readCached    = "read, cached"
	readUncached  = "read, uncached"
)

// storageWhats are the operations in the order of a run: the last ones are left out when time
// is short.
var storageWhats = []string{writeDirect, readDirect, readCached, readUncached, writeBuffered}

// makeFile makes the file of storage servers, and leaves out operations that it cannot do.
func (r *runner) makeFile() (err error) {
	opt := &r.opt
	r.progress.say("writing a file of %d MiB in %s", opt.storageSize>>20, opt.storageDir)
	if r.disk, err = storage.NewFile(opt.storageDir, opt.storageSize); err != nil {
		return err
	}
	kind := fileSystem(opt.storageDir)
	r.note("the file of %d MiB is in %s (%s)", opt.storageSize>>20, opt.storageDir, kind)
	if r.disk.Direct {
		return nil
	}
	r.note("nothing is measured with direct I/O: %s has none: %v. --storage-dir names another directory", kind, r.disk.Why)
	opt.whats = slices.DeleteFunc(slices.Clone(opt.whats), func(what string) bool { return strings.HasSuffix(what, "direct") })
	r.plan.left = opt.cells()
	return nil
}

// storageRequest says what a client asks a storage server for.
func (r *runner) storageRequest(what string, o *load.Options) {
	cfg := r.disk.Config()
	o.Kind, o.Path, o.File = blocks.Read, cfg.Path, cfg.Size
	switch what {
	case writeDirect:
		o.Kind, o.Flags = blocks.Write, blocks.Direct
	case writeBuffered:
		o.Kind, o.Flags = blocks.Write, blocks.Grouped // direct I/O is fast with a sync for each write
	case readDirect:
		o.Flags = blocks.Direct
	}
}

// cacheFile has the page cache know the file before a cell that goes through the cache, or
// forget it before a slice of reads that are uncached.
func (r *runner) cacheFile(what string, slice bool) error {
	switch {
	case !slice && (what == readCached || what == writeBuffered):
		return r.disk.Remember()
	case slice && what == readUncached:
		return r.disk.Forget()
	}
	return nil
}

func fileSystem(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs: memory, not a disk", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	}
	if name, ok := names[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
