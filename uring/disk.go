package uring

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Disk opens, measures and names files. Its calls may wait for the device, so
// that no driver makes them: they are for any goroutine that is not a core.
// That of the machine is Host; a simulation has its own.
type Disk interface {
	// Open opens a file and returns its descriptor, for Driver.AdoptFile or Close.
	Open(path string, opt FileOptions) (fd int, err error)
	// Close closes a descriptor of Open that no driver has adopted.
	Close(fd int) error
	// Stat measures an open file.
	Stat(fd int) (FileInfo, error)
	// ReadAt reads an open file from off on. It reads less than p holds only with an
	// error: io.EOF at the end of the file. With direct I/O all of it is aligned.
	ReadAt(fd int, p []byte, off int64) (n int, err error)
	// Truncate cuts an open file, or makes it longer with zeros. Its new length
	// is durable after a sync.
	Truncate(fd int, size int64) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// Rename and Remove change a directory. Like a new file's entry that is durable
	// after SyncDir.
	Rename(from, to string) error
	Remove(path string) error
	// MakeDir makes a directory and its parents.
	MakeDir(dir string) error
	// SyncDir makes the entries of a directory durable.
	SyncDir(dir string) error
}

// DirectMode says whether I/O on a file passes by the page cache.
type DirectMode uint8

// The modes.
const (
	Buffered  DirectMode = iota // through the page cache
	Direct                      // past it; Open fails with errors.ErrUnsupported where the file system has no direct I/O
	TryDirect                   // past it where that works, else through it: File.Alignment says which
)

// FileOptions say how a file is opened. The zero value opens an existing file for
// reading, through the page cache.
type FileOptions struct {
	Write     bool
	Create    bool // if it is not there; readable by its owner alone
	Exclusive bool // with Create: fail with EEXIST if it is there
	Truncate  bool // empty it
	Direct    DirectMode
}

// FileInfo is the result of Stat on an open file.
type FileInfo struct {
	Size      int64
	Alignment Alignment
}

type host struct{}

// Host is the machine's own disk, for any goroutine.
func Host() Disk { return host{} }

// Open implements Disk.
func (host) Open(path string, opt FileOptions) (int, error) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC | unix.O_LARGEFILE
	if opt.Write {
		flags |= unix.O_RDWR
	}
	for _, o := range [...]struct {
		want bool
		flag int
	}{{opt.Create, unix.O_CREAT}, {opt.Exclusive, unix.O_EXCL}, {opt.Truncate, unix.O_TRUNC}} {
		if o.want {
			flags |= o.flag
		}
	}
	alone := opt.Create && opt.Exclusive
	if opt.Direct == Buffered || alone {
		fd, err := openFile(path, flags)
		if opt.Direct == Buffered || err != nil {
			return fd, err
		}
		// The kernel would make the file and then refuse direct I/O: a second attempt would find it.
		_ = unix.Close(fd)
		flags &^= unix.O_CREAT | unix.O_EXCL
	}
	fd, err := openFile(path, flags|unix.O_DIRECT)
	switch {
	case !errors.Is(err, unix.EINVAL):
		return fd, err
	case opt.Direct == TryDirect:
		return openFile(path, flags)
	case alone:
		_ = unix.Unlink(path)
	}
	return -1, fmt.Errorf("%w: its file system has no direct I/O, use TryDirect or Buffered: %w", err, errors.ErrUnsupported)
}

func openFile(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0o600)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Close implements Disk.
func (host) Close(fd int) error { return os.NewSyscallError("close", unix.Close(fd)) }

// Stat implements Disk.
func (host) Stat(fd int) (FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return FileInfo{}, os.NewSyscallError("fstat", err)
	}
	a, err := alignmentOf(fd)
	return FileInfo{Size: st.Size, Alignment: a}, err
}

// ReadAt implements Disk.
func (host) ReadAt(fd int, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := unix.Pread(fd, p[n:], off+int64(n))
		if err == unix.EINTR {
			continue
		} else if err != nil {
			return n, os.NewSyscallError("pread", err)
		}
		n += m
		var st unix.Stat_t // another read might have a misaligned offset
		if n < len(p) && (m == 0 || unix.Fstat(fd, &st) == nil && st.Size <= off+int64(n)) {
			return n, io.EOF
		}
	}
	return n, nil
}

// Truncate implements Disk.
func (host) Truncate(fd int, size int64) error {
	for {
		if err := unix.Ftruncate(fd, size); err != unix.EINTR {
			return os.NewSyscallError("ftruncate", err)
		}
	}
}

// List implements Disk.
func (host) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, err
}

// Rename implements Disk.
func (host) Rename(from, to string) error { return os.Rename(from, to) }
func (host) Remove(path string) error     { return os.Remove(path) }
func (host) MakeDir(dir string) error     { return os.MkdirAll(dir, 0o700) }

// SyncDir implements Disk.
func (host) SyncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// LockDir locks a directory against other callers of LockDir, in any process, until Close or the
// end of this process. It makes the directory if it does not exist (Disk.MakeDir). The error for a
// locked directory wraps EWOULDBLOCK.
func LockDir(dir string) (io.Closer, error) {
	if err := Host().MakeDir(dir); err != nil {
		return nil, err
	}
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use: %w", dir, err), d.Close())
	}
	return dirLock{d}, nil
}

// dirLock is the lock of a directory.
type dirLock struct{ *os.File }

// Close unlocks at once: a child that begins meanwhile has the descriptor until its exec.
func (d dirLock) Close() error {
	return errors.Join(unix.Flock(int(d.Fd()), unix.LOCK_UN), d.File.Close())
}

// unknownAlignment is used where the kernel does not say (before 6.1): no block
// of a disk and no page is larger on the machines that there are.
const unknownAlignment = 4096

// alignmentOf asks the kernel about an open file.
func alignmentOf(fd int) (Alignment, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return Alignment{}, os.NewSyscallError("fcntl", err)
	}
	if flags&unix.O_DIRECT == 0 {
		return Alignment{}, nil
	}
	var sx unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &sx)
	if err != nil || sx.Mask&unix.STATX_DIOALIGN == 0 || sx.Dio_offset_align == 0 {
		return Alignment{Memory: unknownAlignment, Offset: unknownAlignment}, nil // Open has succeeded
	}
	return Alignment{Memory: int(sx.Dio_mem_align), Offset: int(sx.Dio_offset_align)}, nil
}
