package loop

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

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
		f := openOn(t, p.Core(0), path, direct)
		done := make(chan error, writers)
		must(t, p.Core(0).Do(func(c *Core) {
			for i := range int64(writers) {
				new(writer).start(c, f, i*each, (i+1)*each, done)
			}
		}))
		for range writers {
			must(t, await(t, done))
		}
		st := stats(t, p.Core(0)).Files
		if st.Writes != writers*each || st.Reads != writers*each || st.Errors != 0 || st.Ops != 0 || st.Commits != writers*each/2 {
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
