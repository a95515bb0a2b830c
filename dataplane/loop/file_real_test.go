package loop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// overFiles runs f over each engine, with direct I/O and through the page cache.
func overFiles(t *testing.T, f func(t *testing.T, cfg Config, direct uring.DirectMode)) {
	for _, one := range planetest.Engines() {
		if ReceiveMode(one.Receive) != ReceiveReady {
			continue
		}
		cfg := Config{Driver: uring.Config{Backend: one.Backend}}
		t.Run(one.Name+"/direct", func(t *testing.T) { f(t, cfg, uring.TryDirect) })
		t.Run(one.Name+"/buffered", func(t *testing.T) { f(t, cfg, uring.Buffered) })
	}
}

func openOn(t testing.TB, c *Core, path string, direct uring.DirectMode) *File {
	t.Helper()
	d, err := c.plane.OpenFile(path, FileOptions{Write: true, Create: true, Direct: direct})
	must(t, err)
	return attachOn(t, c, d)
}

func attachOn(t testing.TB, c *Core, d *DetachedFile) (f *File) {
	t.Helper()
	var err error
	must(t, c.call(func(c *Core) { f, err = c.AttachFile(d) }))
	must(t, err)
	return f
}

// writer writes one block after the other, and reads each back when it is durable.
type writer struct {
	FileOp
	f       *File
	buf     *Buffer
	at, end int64
	reading bool
	err     error
	done    chan error
}

func (w *writer) start(c *Core, f *File, from, to int64, done chan error) {
	w.f, w.at, w.end, w.done, w.Done = f, from, to, done, w.step
	if w.buf, w.err = c.Lend(unit); w.err == nil {
		w.write()
	} else {
		w.stop(c)
	}
}

func (w *writer) write() {
	for i := range w.buf.Bytes() {
		w.buf.Bytes()[i] = byte(w.at + int64(i))
	}
	w.reading = false
	if w.err = w.f.WriteAt(&w.FileOp, w.buf.Bytes()[:unit], w.at*unit, Durability(1+w.at%2)); w.err != nil {
		w.stop(w.f.core)
	}
}

func (w *writer) step(c *Core, op *FileOp) {
	switch {
	case op.Err != nil:
		w.err = op.Err
		w.stop(c)
	case !w.reading:
		w.reading = true
		if w.err = w.f.ReadBuffer(op, 1000, w.at*unit+100); w.err != nil {
			w.stop(c)
		}
	default:
		if !bytes.Equal(op.Data, w.buf.Bytes()[100:1100]) {
			w.err = errors.New("other bytes")
		}
		if w.at++; w.at < w.end && w.err == nil {
			w.write()
			return
		}
		w.stop(c)
	}
}

func (w *writer) stop(c *Core) {
	if w.buf != nil {
		c.TakeBack(w.buf)
		w.buf = nil
	}
	w.done <- w.err
}

// Matrix: KV-11
func TestDurableWritesAreReadBackOnAnotherCore(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg Config, direct uring.DirectMode) {
		const writers, each = 16, 6
		cfg.Cores = 2
		p := newPlane(t, cfg)
		path := t.TempDir() + "/f"
		info := p.Info()
		before := fmt.Sprint(info)
		f := openOn(t, p.Core(0), path, direct)
		if now := fmt.Sprint(p.Info()); fmt.Sprint(info) != before || strings.Contains(now, "tried with") != (strings.Contains(before, "tried with") && !f.Alignment().Direct()) {
			t.Errorf("the file has the engine say %s, and before %v, which was %s", now, info, before)
		}
		done := make(chan error, writers)
		must(t, p.Core(0).Do(func(c *Core) {
			for i := range int64(writers) {
				new(writer).start(c, f, i*each, (i+1)*each, done)
			}
		}))
		for range writers {
			must(t, await(t, done))
		}
		st, commits := stats(t, p.Core(0)).Files, uint64(writers*each)
		if f.Alignment().Direct() {
			commits /= 2 // the others have a sync of their own
		}
		if st.Writes != writers*each || st.Reads != writers*each || st.Errors != 0 || st.Ops != 0 || st.Commits != commits {
			t.Errorf("%+v", st)
		}
		must(t, p.Core(0).Do(func(*Core) { f.Close() }))
		d, err := p.OpenFile(path, FileOptions{Write: true, Direct: direct})
		must(t, err)
		if d.Size() != writers*each*unit {
			t.Fatalf("opened again as %+v", d)
		}
		block, err := uring.Map(unit)
		must(t, err)
		defer func() { must(t, block.Unmap()) }()
		n, err := d.ReadAt(block.Bytes(), 5*unit)
		if n != unit || err != nil || block.Bytes()[1] != 6 {
			t.Errorf("without a core %d bytes are read: %v, %v", n, block.Bytes()[:2], err)
		}
		g := attachOn(t, p.Core(1), d)
		if _, err = d.ReadAt(block.Bytes(), 0); !errors.Is(err, ErrFileClosed) {
			t.Errorf("a file that a core has is read by others: %v", err)
		}
		must(t, p.RemoveCore(deadline(t), p.Core(0))) // nothing keeps it
		must(t, p.Core(1).Do(func(c *Core) { new(writer).start(c, g, 0, 2, done) }))
		must(t, await(t, done))
	})
}

func await[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("it never ends")
		panic("not reached")
	}
}

func TestFilesLeaveNothingBehind(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg Config, direct uring.DirectMode) {
		path := t.TempDir() + "/f"
		for name, end := range map[string]func(p *Plane, f *File){
			"close of the file":  func(p *Plane, f *File) { must(t, p.Core(0).call(func(*Core) { f.Close() })) },
			"close of the plane": func(*Plane, *File) {},
			"removal of the core": func(p *Plane, _ *File) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if err := p.RemoveCore(ctx, p.Core(0)); !errors.Is(err, context.Canceled) {
					t.Errorf("a core with a file is removed: %v", err)
				}
			},
			"failure of the core": func(p *Plane, _ *File) {
				_ = p.Core(0).Do(func(c *Core) { c.drv.(*fragile).broken = true })
			},
		} {
			t.Run(name, func(t *testing.T) {
				drivertest.CheckLeaks(t, func() {
					cfg := cfg
					cfg.Cores = 2
					cfg.Open = func(int) (uring.Driver, error) {
						d, err := uring.Open(cfg.Driver)
						return &fragile{Driver: d}, err
					}
					p, err := New(cfg)
					must(t, err)
					f := openOn(t, p.Core(0), path, direct)
					const n = 64
					ended := make(chan error, n)
					must(t, p.Core(0).call(func(c *Core) {
						for i := range int64(n) {
							buf, err := c.Lend(unit)
							must(t, err)
							op := &FileOp{Done: func(c *Core, op *FileOp) { c.TakeBack(buf); ended <- op.Err }}
							must(t, f.WriteAt(op, buf.Bytes()[:unit], i*unit, Committed))
						}
					}))
					end(p, f)
					must(t, p.Close())
					for range n { // each of them is told how it ended
						if err := await(t, ended); err != nil && !errors.Is(err, ErrFileClosed) && !errors.Is(err, ErrStopped) && !errors.Is(err, ErrCoreRemoved) {
							t.Errorf("ended with %v", err)
						}
					}
				})
			})
		}
	})
}

// fragile is a driver that can break.
type fragile struct {
	uring.Driver
	broken bool // the core's
}

func (d *fragile) Wait(timeout time.Duration) ([]uring.Completion, error) {
	if d.broken {
		return nil, errors.New("broken")
	}
	return d.Driver.Wait(timeout)
}

func TestABatchOfATurnIsOneSystemCall(t *testing.T) {
	overFiles(t, func(t *testing.T, cfg Config, direct uring.DirectMode) {
		if cfg.Driver.Backend == uring.Epoll {
			return // its calls are counted by the tests of the engine
		}
		cfg.Cores = 1
		p := newPlane(t, cfg)
		f := openOn(t, p.Core(0), t.TempDir()+"/f", direct)
		const n = 100
		ended := make(chan error, n)
		var before uring.Stats
		var during uint64
		must(t, p.Core(0).call(func(c *Core) {
			blocks := make([]*Buffer, n)
			for i := range blocks { // whose memory is registered when it is new
				var err error
				blocks[i], err = c.Lend(unit)
				must(t, err)
			}
			before = c.drv.Stats()
			for i, buf := range blocks {
				op := &FileOp{Done: func(c *Core, op *FileOp) { c.TakeBack(buf); ended <- op.Err }}
				must(t, f.WriteAt(op, buf.Bytes()[:unit], int64(i)*unit, Written))
			}
			during = c.drv.Stats().Syscalls - before.Syscalls
		}))
		for range n {
			must(t, await(t, ended))
		}
		if during != 0 {
			t.Errorf("%d system calls to ask for a batch", during)
		}
		if after := stats(t, p.Core(0)).Driver; after.Submitted-before.Submitted < n {
			t.Errorf("%d requests were submitted", after.Submitted-before.Submitted)
		}
	})
}

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
				if name := s.On(c).name; name != s.Path(i) {
					t.Errorf("core %d has %s", i, name)
				}
				if info := fmt.Sprint(p.Info()); s.On(c).Alignment().Direct() && strings.Contains(info, "tried with") {
					t.Errorf("core %d has a file with direct I/O, and the engine says %s", i, info)
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
			if open := c.stats.Files.Open; open != 1 || s.On(c).name != s.Path(2) {
				t.Errorf("the next core with that number has %d files, of them %s", open, s.On(c).name)
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
	renew := func() { s.Renew(b.c, func(_ *Core, err error) { opened++; must(t, err) }) }
	renew()
	renew()
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
	renew()
	if b.settle(); opened != 2 || s.On(b.c) == b.f {
		t.Errorf("opened %d times, once more", opened)
	}
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
