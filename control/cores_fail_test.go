package control_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// fragile is a driver that breaks at the test's wish.
type fragile struct {
	uring.Driver
	broken *atomic.Bool
}

var errBroken = errors.New("the ring is gone")

func (d fragile) Wait(timeout time.Duration) ([]uring.Completion, error) {
	if d.broken.Load() {
		return nil, errBroken
	}
	got, err := d.Driver.Wait(timeout)
	if d.broken.Load() {
		return nil, errBroken
	}
	return got, err
}

// breakable is a plane the cores of which can be broken by their number, once.
func breakable(backend uring.Backend, cores int) (loop.Config, func(m *control.Messenger, core int)) {
	flags := make([]atomic.Bool, cores)
	cfg := loop.Config{Cores: cores, Open: func(core int) (uring.Driver, error) {
		d, err := uring.Open(uring.Config{Backend: backend})
		if err != nil || flags[core].Load() {
			return d, err // the one that takes its place
		}
		return fragile{d, &flags[core]}, nil
	}}
	return cfg, func(m *control.Messenger, core int) {
		c := m.RawPlane().Core(core)
		flags[core].Store(true)
		_ = c.Do(func(*loop.Core) {}) // it may have noticed already
	}
}

// The driver of a core breaks for good: lossless sessions go on, on other
// cores, lossy ones end, and nobody who comes later notices.
// Matrix: IO-15
func TestAFailedCoreLeavesItsSessionsToTheOthers(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		const cores = 3
		plane, breakCore := breakable(backend, cores)
		log := &textLog{}
		b := newCoreBench(t, control.Config{
			Plane: plane, Logger: slog.New(slog.NewTextHandler(log, nil)),
		}, backend)
		defer b.halt()
		b.weak = true
		b.run(4, 1)
		b.progress()
		for failed := range cores - 1 {
			breakCore(b.server, failed)
			eventually(t, b.ctx, "the failure in the statistics", func() bool {
				st := statsOf(t, b.server)
				return st.Cores[failed].State == "failed" && strings.Contains(st.Cores[failed].Failed, errBroken.Error())
			})
			b.progress()
			b.knockSome(20)
			for _, c := range b.server.Conns() {
				eventually(t, b.ctx, "every connection on a core that runs", func() bool {
					return c.Core().ID() > failed || c.State() == control.StateClosing
				})
			}
			if text := statsOf(t, b.server).String(); !strings.Contains(text, "failed") {
				t.Errorf("the failure is not in the text:\n%s", text)
			}
			if n := log.count("core failed"); n != failed+1 {
				t.Errorf("%d failures logged, want %d", n, failed+1)
			}
		}
		if err := b.server.RemoveCore(b.ctx, cores-1); !errors.Is(err, control.ErrLastCore) {
			t.Errorf("the last core that runs: %v", err)
		}
		if err := b.server.PinPeer(source(1), 0); !errors.Is(err, control.ErrUnsteered) {
			t.Errorf("pinned: %v", err)
		}
		for failed := range cores - 1 {
			must(t, b.server.RemoveCore(b.ctx, failed))
			if id, err := b.server.AddCore(b.ctx); err != nil || id != failed {
				t.Fatalf("core %d, %v in place of core %d", id, err, failed)
			}
			b.progress()
		}
		b.knockSome(100)
		for _, c := range statsOf(t, b.server).Cores {
			if c.Core < cores-1 && c.Accepts == 0 {
				t.Errorf("core %d accepts nothing", c.Core)
			}
		}
		b.stop()
		for _, f := range b.flows {
			if !f.weak && f.conn.State() != control.StateReady {
				t.Errorf("conn %d is %v: %v", f.conn.ID(), f.conn.State(), f.conn.Err())
			}
		}
	})
}

// The only core fails, and nobody is there to take its listener over. The next
// one listens in its place.
func TestACoreIsAddedAfterTheOnlyOneHasFailed(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		plane, fail := breakable(backend, 2)
		plane.Cores = 1
		b := newCoreBench(t, control.Config{Plane: plane}, backend)
		m := b.client(false, 1)
		f := b.connect(m)
		if f == nil {
			t.FailNow()
		}
		fail(b.server, 0)
		<-b.server.Plane().Failures()
		if id, err := b.server.AddCore(b.ctx); err != nil || id != 1 {
			t.Fatalf("added core %d, %v", id, err)
		}
		must(t, b.server.RemoveCore(b.ctx, 0))
		b.knockSome(3)
		must(t, f.push(b.ctx))
		must(t, f.settle(b.ctx))
		b.stop()
	})
}
