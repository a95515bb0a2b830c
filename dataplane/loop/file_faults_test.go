package loop

import (
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// faultRun is a core with a file, of whose requests one fails.
type faultRun struct {
	t      *testing.T
	cell   faulty.Cell
	strike *faulty.Strike
	core   *Core
	f      *File
}

// do makes a request on the core, and waits for its end.
func (r *faultRun) do(ask func(op *FileOp, buf []byte) error) (failed error) {
	r.t.Helper()
	ended := make(chan error, 1)
	must(r.t, r.core.call(func(c *Core) {
		buf, err := c.Lend(2 * unit)
		if err != nil {
			ended <- err
			return
		}
		op := &FileOp{Done: func(c *Core, op *FileOp) {
			c.TakeBack(buf)
			ended <- op.Err
		}}
		if err := ask(op, buf.Bytes()[:2*unit]); err != nil {
			c.TakeBack(buf)
			ended <- err
		}
	}))
	return await(r.t, ended)
}

func (r *faultRun) read() error {
	return r.do(func(op *FileOp, p []byte) error { return r.f.ReadAt(op, p, 0) })
}

func (r *faultRun) write(how Durability) error {
	return r.do(func(op *FileOp, p []byte) error { return r.f.WriteAt(op, p, 0, how) })
}

func (r *faultRun) allocate() error {
	return r.do(func(op *FileOp, _ []byte) error { return r.f.Allocate(op, 0, 4*unit) })
}

// struck makes the request that fails.
func (r *faultRun) struck() error {
	switch r.cell.Request {
	case faulty.ReadFileEnd:
		return r.read()
	case faulty.AllocateFileEnd:
		return r.allocate()
	case faulty.SyncFileEnd:
		return r.write(Committed)
	}
	return r.write(Written)
}

// Whatever the kernel answers to a request on a file, what becomes of it is what the table
// says, and nothing is left behind.
// Matrix: ST-05
func TestEveryErrorOfAFileEndsByTheTable(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg Config, direct uring.DirectMode) {
		path := t.TempDir() + "/f"
		leaks := drivertest.Leaks(t)
		for i, cell := range faulty.FileTable() {
			if direct != uring.Buffered && cfg.Driver.Backend == uring.Epoll && i%6 != 0 {
				continue // the kernel takes its time to end a context of AIO
			}
			t.Run(cell.String(), func(t *testing.T) {
				r := &faultRun{t: t, cell: cell, strike: &faulty.Strike{At: cell.Request, Fault: cell.Fault, Nth: 1}}
				armed := false // the core's
				cfg := cfg
				cfg.Cores = 1
				cfg.Open = faulty.OpenWith(func(int) (uring.Driver, error) { return uring.Open(cfg.Driver) },
					func(at faulty.Request) faulty.Fault {
						if !armed {
							return faulty.Fault{}
						}
						return r.strike.Ask(at)
					})
				p, err := New(cfg)
				must(t, err)
				defer p.Close()
				r.core = p.Core(0)
				if cell.Request != faulty.AdoptFile {
					r.f = openOn(t, r.core, path, direct)
					must(t, r.write(Written))
				}
				must(t, r.core.call(func(*Core) { armed = true }))
				r.run(path)
				if !r.strike.Struck() {
					t.Error("it never failed")
				}
			})
		}
		leaks()
	})
}

func (r *faultRun) run(path string) {
	t, errno := r.t, r.cell.Fault.Errno
	switch r.cell.Then {
	case faulty.NotOpened:
		d, err := r.core.plane.OpenFile(path, FileOptions{Write: true, Create: true})
		must(t, err)
		must(t, r.core.call(func(c *Core) { _, err = c.AttachFile(d) }))
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), path) {
			t.Errorf("attached: %v", err)
		}
		return
	case faulty.RequestFails:
		if err := r.struck(); !errors.Is(err, errno) || !strings.Contains(err.Error(), path) {
			t.Errorf("ended with %v", err)
		}
	case faulty.EndsEarly:
		if err := r.struck(); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("ended with %v", err)
		}
	case faulty.Unnoticed:
		if err := r.struck(); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("ended with %v", err)
		}
	case faulty.Poisons:
		for _, err := range []error{r.struck(), r.write(Written), r.write(Committed)} {
			if !errors.Is(err, errno) || !errors.Is(err, ErrNotDurable) {
				t.Errorf("a poisoned file: %v", err)
			}
		}
		must(t, r.read())
		return
	}
	how := Written
	if r.cell.Request == faulty.SyncFileEnd {
		how = Committed
	}
	must(t, r.write(how))
	must(t, r.read())
}
