package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Each core has its file, one that is added later too; removing a core closes it, and waits
// for nobody.
// Matrix: ST-08
func TestACoreFileIsOpenOnEachCoreAndEndsWithIt(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg Config, direct uring.DirectMode) {
		dir := t.TempDir()
		s := CoreFile{
			Path:    func(core int) string { return filepath.Join(dir, fmt.Sprint(core)) },
			Options: FileOptions{Write: true, Create: true, Direct: direct},
		}
		cfg.Cores, cfg.Started = 2, s.Open
		p := newPlane(t, cfg)
		c, err := p.AddCore()
		must(t, err)
		for i, c := range p.All() {
			ended := make(chan error, 1)
			op := FileOp{Done: func(_ *Core, op *FileOp) { ended <- op.Err }}
			must(t, c.call(func(c *Core) {
				if name := s.On(c).Name(); name != s.Path(i) {
					t.Errorf("core %d has %s", i, name)
				}
				if err := s.On(c).Allocate(&op, 0, unit); err != nil {
					ended <- err
				}
			}))
			must(t, <-ended)
		}
		must(t, p.Drain(c))
		must(t, p.AwaitDrained(deadline(t), c))
		after := make(chan error, 1)
		c.Post(&Task{Run: func(c *Core) {
			after <- s.On(c).Sync(&FileOp{Done: func(*Core, *FileOp) {}})
		}})
		if err := <-after; !errors.Is(err, ErrStopped) {
			t.Errorf("behind the end of the core: %v", err)
		}
		again, err := p.AddCore()
		must(t, err)
		must(t, again.call(func(c *Core) {
			if open := c.stats.Files.Open; open != 1 || s.On(c).Name() != s.Path(2) {
				t.Errorf("the next core with that number has %d files, of them %s", open, s.On(c).Name())
			}
		}))
	})
}

// Matrix: ST-08
func TestARequestOnACoreFileKeepsItsCore(t *testing.T) {
	s := CoreFile{Path: func(int) string { return "/core" }, Options: FileOptions{Write: true, Create: true, CommitDelay: time.Second}}
	b := newFileBed(t, FileOptions{}, func(cfg *Config) { cfg.Started = s.Open })
	b.f.Close()
	b.f = s.On(b.c)
	write := b.write(Committed, 0)
	b.settle()
	b.c.draining.Store(true)
	b.settle()
	b.answer(uring.KindWrite, 0)
	if b.c.Gone() {
		t.Fatal("the core has not waited for a write that waits for others")
	}
	b.after(time.Second)
	b.answer(uring.KindSync, 0)
	b.ended(write, nil)
	if b.settle(); !b.c.Gone() {
		t.Error("its file keeps the core")
	}
}

// Matrix: ST-08
func TestACoreFileIsOpenedAnewBehindAFailedSync(t *testing.T) {
	s := CoreFile{Path: func(int) string { return "/core" }, Options: FileOptions{Write: true, Create: true}}
	b := newFileBed(t, FileOptions{}, func(cfg *Config) { cfg.Started = s.Open })
	b.f.Close()
	b.f = s.On(b.c)
	lost := b.write(Committed, 0)
	b.settle()
	b.answer(uring.KindWrite, 0)
	b.answer(uring.KindSync, unix.EIO)
	b.ended(lost, ErrNotDurable)
	opened := 0
	for range 2 {
		s.Renew(b.c, func(_ *Core, err error) { opened++; must(t, err) })
	}
	if err := b.f.Sync(&newRequest().FileOp); !errors.Is(err, ErrFileClosed) || opened != 0 {
		t.Errorf("a request meanwhile: %v, opened %d times", err, opened)
	}
	b.settle()
	if b.f = s.On(b.c); opened != 1 || b.f.Poisoned() != nil || b.c.stats.Files.Open != 1 || b.c.staying != 1 {
		t.Errorf("opened %d times, %v; %d open, %d stay", opened, b.f.Poisoned(), b.c.stats.Files.Open, b.c.staying)
	}
	b.write(Written, 0)
	b.settle()
	b.answer(uring.KindWrite, 0)
}

func TestACoreWhoseFileCannotBeOpenedDoesNotStart(t *testing.T) {
	overBackends(t, func(t *testing.T, cfg Config) {
		dir := t.TempDir()
		one := CoreFile{Path: func(int) string { return filepath.Join(dir, "one") }, Options: FileOptions{Create: true}}
		two := CoreFile{Path: func(int) string { return filepath.Join(dir, "two") }}
		cfg.Cores = 1
		cfg.Started = func(c *Core) error { return errors.Join(one.Open(c), two.Open(c)) }
		var path *fs.PathError
		if _, err := New(cfg); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &path) && path.Path != two.Path(0) {
			t.Errorf("%v", err)
		}
	})
}
