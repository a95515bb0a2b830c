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
	drv    *driver // that has adopted it
	busy   int     // requests in flight
	shut   bool
}

// renaming is one change of names.
type renaming struct {
	from, to string // from is empty for a new file or directory, to for a removed one
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

// among says whether the change is one of these names.
func (r *renaming) among(names map[string]bool) bool { return names[r.from] || names[r.to] }

func (r *renaming) addTo(names map[string]bool) {
	for _, path := range [...]string{r.from, r.to} {
		if path != "" {
			names[path] = true
		}
	}
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

// refuse counts a change or sync of names, and says why it comes to nothing, if it does.
func (k *Disk) refuse(op, path string) error {
	if k.opt.StopAt > 0 && !k.orphan {
		if k.opt.StopAt--; k.opt.StopAt == 0 {
			k.orphan = true
			k.counts.Stops++
		}
	}
	if errno := k.fault(uring.KindNone, path); errno != 0 {
		k.counts.Errors++
		return pathError(op, path, errno)
	}
	return nil
}

// crashNames chooses what becomes of the changes of names that are not durable.
func (k *Disk) crashNames() {
	const most = 4
	likely := k.host.net.rng.IntN(most + 1) // also none of them, or all
	lost := map[string]bool{}
	for _, r := range k.moved {
		if r.among(lost) || k.host.net.rng.IntN(most) >= likely {
			r.addTo(lost)
			k.counts.Unnamed++
		} else {
			r.apply(k.kept)
		}
	}
	for path := range k.kept {
		for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if k.names[dir] != nil && k.kept[dir] == nil {
				delete(k.kept, path)
			}
		}
	}
	k.moved, k.names = nil, maps.Clone(k.kept)
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
	case i != nil && i.dir:
		return -1, pathError("open", path, unix.EISDIR)
	case i == nil:
		if err := k.refuse("open", path); err != nil {
			return -1, err
		}
		i = new(inode)
		k.rename(renaming{to: path, file: i})
	}
	if opt.Truncate && len(i.data) > 0 {
		i.write(change{seq: k.next()})
	}
	h := &handle{inode: i, path: path, writes: opt.Write}
	if opt.Direct != uring.Buffered {
		h.align = uring.Alignment{Memory: sector, Offset: sector}
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
	if i := k.names[dir]; names == nil && (i == nil || !i.dir) {
		return nil, pathError("open", dir, unix.ENOENT)
	}
	return names, nil
}

// Rename implements uring.Disk.
func (k *Disk) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	return k.move("rename", renaming{from: from, to: to, file: k.names[from]})
}

// Remove implements uring.Disk.
func (k *Disk) Remove(path string) error {
	return k.move("remove", renaming{from: filepath.Clean(path)})
}

// move changes the name of a file. Directories stay where they are.
func (k *Disk) move(op string, r renaming) error {
	err := k.refuse(op, r.from)
	switch i, over := k.names[r.from], k.names[r.to]; {
	case err != nil:
		return err
	case i == nil:
		return pathError(op, r.from, unix.ENOENT)
	case i.dir || over != nil && over.dir:
		return pathError(op, r.from, unix.EISDIR)
	}
	k.rename(r)
	return nil
}

// MakeDir implements uring.Disk.
func (k *Disk) MakeDir(dir string) error {
	dir = filepath.Clean(dir)
	switch i := k.names[dir]; {
	case i != nil && !i.dir:
		return pathError("mkdir", dir, unix.ENOTDIR)
	case i != nil || dir == filepath.Dir(dir):
		return nil
	}
	err := k.MakeDir(filepath.Dir(dir))
	if err == nil {
		err = k.refuse("mkdir", dir)
	}
	if err == nil {
		k.rename(renaming{to: dir, file: &inode{dir: true}})
	}
	return err
}

// SyncDir implements uring.Disk. Changes of the same names that came before, in another
// directory, become durable with those of this one, as changes of a name keep their order.
func (k *Disk) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	if err := k.refuse("sync", dir); err != nil {
		return err
	}
	names, synced := map[string]bool{}, map[int]bool{}
	for at, r := range slices.Backward(k.moved) {
		if r.in(dir) || r.among(names) {
			r.addTo(names)
			synced[at] = true
		}
	}
	rest := k.moved[:0]
	for at, r := range k.moved {
		if synced[at] {
			r.apply(k.kept)
		} else {
			rest = append(rest, r)
		}
	}
	k.moved = rest
	return nil
}
