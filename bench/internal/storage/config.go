package storage

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
)

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

// way is the way of a request.
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

// of is the file for r.
func (f *files) of(r blocks.Request) (*os.File, error) {
	if one := f[way(r)]; one != nil {
		return one, nil
	}
	return nil, errWay(r)
}

func errWay(r blocks.Request) error {
	return fmt.Errorf("%w: flags %#x: the file is not open for that", blocks.ErrBlock, r.Flags)
}

// carryOut carries out r, with p as the data, and checks it. It waits for the disk.
func (f *files) carryOut(r blocks.Request, p []byte) error {
	if len(p) != r.Len {
		return fmt.Errorf("%w: %d bytes of data for %d", blocks.ErrBlock, len(p), r.Len)
	}
	file, err := f.of(r)
	if err != nil {
		return err
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
	_, err = file.WriteAt(p, r.Off)
	return err
}
