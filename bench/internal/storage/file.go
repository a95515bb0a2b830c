// Package storage has the servers that the storage benchmark compares: each of them reads
// and durably overwrites blocks of one file, and answers. Blocking and Messenger speak
// msgr2.1; Ring speaks raw requests (package blocks), without frames.
//
// All of them check every block that they read, and every one before they write it.
package storage

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/uring"
)

// fillEach is the size of one write that fills the file.
const fillEach = 1 << 20

// File is the file of all servers. It has no name, so that it disappears in any case when the
// program ends. Any goroutine, one at a time.
type File struct {
	// Direct says that it can be used past the page cache; if not, Why is the reason.
	Direct bool
	Why    error

	f    *os.File
	size int64
}

// NewFile makes one of size bytes in dir, full of blocks, on the disk.
func NewFile(dir string, size int64) (*File, error) {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file without a name: %w", err)
	}
	file := &File{f: f, size: size}
	if err := file.fill(); err != nil {
		file.Close()
		return nil, fmt.Errorf("fill a file of %d bytes in %s: %w", size, dir, err)
	}
	d, err := os.OpenFile(file.Path(), os.O_RDWR|unix.O_DIRECT, 0)
	if file.Direct, file.Why = err == nil, err; err == nil {
		_ = d.Close() // it was only read
	}
	return file, nil
}

func (f *File) fill() error {
	if err := unix.Fallocate(int(f.f.Fd()), 0, 0, f.size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	mem, err := uring.Map(fillEach)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Unmap() }() // it is not used any more
	for off := int64(0); off < f.size; off += fillEach {
		p := mem.Bytes()[:min(fillEach, f.size-off)]
		blocks.Fill(p, off, 0)
		if _, err := f.f.WriteAt(p, off); err != nil {
			return err
		}
	}
	return f.f.Sync()
}

// Path opens it, as long as this process has it.
func (f *File) Path() string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(f.f.Fd()))
}

// Config is the part of a server's configuration about the file.
func (f *File) Config() Config { return Config{Path: f.Path(), Size: f.size, Direct: f.Direct} }

// Forget drops the file from the page cache.
func (f *File) Forget() error {
	return os.NewSyscallError("posix_fadvise", unix.Fadvise(int(f.f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// Remember reads the file into the page cache.
func (f *File) Remember() error {
	p := make([]byte, fillEach)
	for off := int64(0); off < f.size; off += fillEach {
		if _, err := f.f.ReadAt(p[:min(fillEach, f.size-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// Close ends it. Processes that have opened it keep it.
func (f *File) Close() { _ = f.f.Close() } // its content is not needed any more

// Config is the configuration of a server.
type Config struct {
	Path string `json:"path"` // of the file, which is there and holds blocks
	Size int64  `json:"size"` // of it
	// Direct is whether the file can be used past the page cache.
	Direct bool `json:"direct"`
}

// The ways to the file, as indexes.
const (
	buffered = iota
	direct
	ways
)

func way(r blocks.Request) int {
	if r.Flags&blocks.Direct != 0 {
		return direct
	}
	return buffered
}

// files are the descriptors for system calls: their writes are durable when they return
// (O_DSYNC).
type files [ways]*os.File

func openFiles(cfg Config) (f files, err error) {
	for i, flags := range [...]int{buffered: 0, direct: unix.O_DIRECT} {
		if i == direct && !cfg.Direct {
			continue
		}
		if f[i], err = os.OpenFile(cfg.Path, os.O_RDWR|unix.O_DSYNC|flags, 0); err != nil {
			f.close()
			return files{}, err
		}
	}
	return f, nil
}

func (f *files) close() {
	for _, one := range f {
		if one != nil {
			_ = one.Close() // it was only read, or its writes are durable
		}
	}
}

func errWay(r blocks.Request) error {
	return fmt.Errorf("%w: flags %#x: the file is not open for that", blocks.ErrBlock, r.Flags)
}

// carryOut carries out r, with p as the data, and checks it. It waits for the disk.
func (f *files) carryOut(r blocks.Request, p []byte) error {
	if len(p) != r.Len {
		return fmt.Errorf("%w: %d bytes of data for %d", blocks.ErrBlock, len(p), r.Len)
	}
	file := f[way(r)]
	if file == nil {
		return errWay(r)
	}
	if r.Kind == blocks.Read {
		if _, err := file.ReadAt(p, r.Off); err != nil {
			return err
		}
		return blocks.Stamped(p, r.Off)
	}
	if err := blocks.Stamped(p, r.Off); err != nil {
		return err
	}
	_, err := file.WriteAt(p, r.Off)
	return err
}
