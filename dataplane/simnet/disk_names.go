package simnet

import (
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// handle is an open file.
type handle struct {
	*inode
	path   string
	writes bool
	align  uring.Alignment
	drv    *Driver // that has adopted it
	busy   int     // requests in flight
	shut   bool
}

// renaming is one change of names.
type renaming struct {
	from, to string // from is empty for a new file, to for a removed one
	file     *inode
}

func (r *renaming) apply(names map[string]*inode) {
	if r.from != "" {
		delete(names, r.from)
	}
	if r.to != "" {
		names[r.to] = r.file
	}
}

func (r *renaming) in(dir string) bool {
	return r.from != "" && filepath.Dir(r.from) == dir || r.to != "" && filepath.Dir(r.to) == dir
}

var _ uring.Disk = (*Disk)(nil)

func pathError(op, path string, errno unix.Errno) error {
	return &fs.PathError{Op: op, Path: path, Err: errno}
}

// rename changes names, for programs.
func (k *Disk) rename(r renaming) {
	r.apply(k.names)
	k.moved = append(k.moved, r)
}

// stops counts a change or sync of names, and says whether it comes to nothing.
func (k *Disk) stops() bool {
	if k.opt.StopAt > 0 && !k.orphan {
		if k.opt.StopAt--; k.opt.StopAt == 0 {
			k.orphan = true
			k.counts.Stops++
		}
	}
	return k.orphan
}

// inodes are all files, by name; those without one last, by their handles.
func (k *Disk) inodes() (list []*inode) {
	seen := map[*inode]bool{}
	add := func(i *inode) {
		if !seen[i] {
			seen[i] = true
			list = append(list, i)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(k.names)) {
		add(k.names[path])
	}
	for _, path := range slices.Sorted(maps.Keys(k.kept)) {
		add(k.kept[path])
	}
	for _, r := range k.moved {
		if r.file != nil {
			add(r.file)
		}
	}
	return list
}

// Open implements uring.Disk.
func (k *Disk) Open(path string, opt uring.FileOptions) (int, error) {
	path = filepath.Clean(path)
	i := k.names[path]
	switch {
	case k.orphan:
		return -1, pathError("open", path, unix.EIO)
	case i == nil && !opt.Create:
		return -1, pathError("open", path, unix.ENOENT)
	case i != nil && opt.Create && opt.Exclusive:
		return -1, pathError("open", path, unix.EEXIST)
	case i == nil && k.stops():
		return -1, pathError("open", path, unix.EIO)
	case i == nil:
		i = new(inode)
		k.rename(renaming{to: path, file: i})
	}
	if opt.Truncate && len(i.data) > 0 {
		i.write(change{seq: k.next()})
	}
	h := &handle{inode: i, path: path, writes: opt.Write}
	if opt.Direct != uring.Buffered {
		h.align = k.opt.Alignment
	}
	k.host.net.nextID++
	k.opened[k.host.net.nextID] = h
	return k.host.net.nextID, nil
}

func (k *Disk) next() uint64 { k.seq++; return k.seq }

// Close implements uring.Disk.
func (k *Disk) Close(fd int) error {
	if k.opened[fd] == nil {
		return unix.EBADF
	}
	delete(k.opened, fd)
	return nil
}

// Stat implements uring.Disk.
func (k *Disk) Stat(fd int) (uring.FileInfo, error) {
	h := k.opened[fd]
	if h == nil {
		return uring.FileInfo{}, unix.EBADF
	}
	return uring.FileInfo{Size: int64(len(h.data)), Alignment: h.align}, nil
}

// ReadAt implements uring.Disk. It takes no time, and fails as a request does.
func (k *Disk) ReadAt(fd int, p []byte, off int64) (int, error) {
	h := k.opened[fd]
	if h == nil || off < 0 {
		return 0, unix.EBADF
	}
	if errno := k.fault(uring.KindRead, h.path); errno != 0 {
		k.counts.Errors++
		return 0, pathError("read", h.path, errno)
	}
	k.counts.Reads++
	n := copy(p, h.data[min(off, int64(len(h.data))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Truncate implements uring.Disk.
func (k *Disk) Truncate(fd int, size int64) error {
	h := k.opened[fd]
	if h == nil || !h.writes {
		return unix.EBADF
	}
	h.write(change{seq: k.next(), size: size})
	return nil
}

// List implements uring.Disk.
func (k *Disk) List(dir string) (names []string, err error) {
	dir = filepath.Clean(dir)
	for _, path := range slices.Sorted(maps.Keys(k.names)) {
		if filepath.Dir(path) == dir {
			names = append(names, filepath.Base(path))
		}
	}
	if names == nil && !k.dirs[dir] {
		return nil, pathError("open", dir, unix.ENOENT)
	}
	return names, nil
}

// Rename implements uring.Disk.
func (k *Disk) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	i := k.names[from]
	switch {
	case k.stops():
		return pathError("rename", from, unix.EIO)
	case i == nil:
		return pathError("rename", from, unix.ENOENT)
	}
	k.rename(renaming{from: from, to: to, file: i})
	return nil
}

// Remove implements uring.Disk.
func (k *Disk) Remove(path string) error {
	path = filepath.Clean(path)
	switch {
	case k.stops():
		return pathError("remove", path, unix.EIO)
	case k.names[path] == nil:
		return pathError("remove", path, unix.ENOENT)
	}
	k.rename(renaming{from: path})
	return nil
}

// MakeDir implements uring.Disk.
func (k *Disk) MakeDir(dir string) error { k.dirs[filepath.Clean(dir)] = true; return nil }

// SyncDir implements uring.Disk.
func (k *Disk) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	if k.stops() {
		return pathError("sync", dir, unix.EIO)
	}
	k.moved = slices.DeleteFunc(k.moved, func(r renaming) bool {
		if r.in(dir) {
			r.apply(k.kept)
		}
		return r.in(dir)
	})
	return nil
}
