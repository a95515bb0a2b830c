package interop_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A client writes and reads objects while its monitor, of three, is killed and comes back; while an OSD is frozen for a while; and
// while the OSD is restarted. The cluster keeps every write, and no log complains about the client.
// Matrix: IN-12
func TestObjectsStayAvailable(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "secure", mons: 3, osds: 1})
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			c.osds[0].set(t, "osd_fast_shutdown", "false") // then a disk in memory is kept in files
			w := c.keepWriting(t, backend)
			w.goOn(20)

			session := w.cl.Mon().Conn()
			mon := c.monAt(t, session.Info().PeerAddrs)
			mon.kill()
			w.until("another monitor", func() bool { now := w.cl.Mon().Conn(); return now != nil && now != session })
			w.goOn(20)
			mon.restart(c.t) // what ends with the backend would be missed by the next one
			c.awaitQuorum(3)

			c.osds[0].freeze(t)
			c.ceph("status") // takes a moment
			c.osds[0].thaw(t)
			w.goOn(20)

			c.osds[0].end(t)
			c.awaitUp(0)
			c.osds[0].restart(c.t)
			c.awaitUp(1)
			w.goOn(20)
			w.end()
		})
	}
}

// monAt is the monitor that has these addresses.
func (c *cluster) monAt(t *testing.T, addrs wire.AddrVec) *daemon {
	t.Helper()
	for i, a := range c.allMons {
		if a.V2().AddrPort == addrs.V2().AddrPort {
			return c.mons[i]
		}
	}
	t.Fatalf("no monitor has %v", addrs)
	return nil
}

// writing is a client whose writers go on until end.
type writing struct {
	t       *testing.T
	c       *cluster
	cl      *rados.Cluster
	pool    rados.Pool
	said    logs
	ctx     context.Context
	over    atomic.Bool
	done    atomic.Int64 // writes that were read back
	writers sync.WaitGroup
	last    [4][]byte // of each writer's object; valid once they have ended
}

func (c *cluster) keepWriting(t *testing.T, backend uring.Backend) *writing {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	w := &writing{t: t, c: c, said: c.watchLogs(t), ctx: ctx, cl: dialCluster(t, c, "msgr2.1", backend)}
	t.Cleanup(func() {
		cancel()
		w.writers.Wait()
	})
	w.pool = object(t, w.cl, "").Pool()
	for i := range w.last {
		w.writers.Go(func() { w.write(i) })
	}
	return w
}

func (w *writing) write(i int) {
	o := w.pool.Object(fmt.Sprint("object", i))
	for n := 0; !w.over.Load(); n++ {
		data := bytes.Repeat(fmt.Appendf(nil, "write %d of writer %d,", n, i), 500)
		if err := o.WriteFull(w.ctx, data); err != nil {
			w.t.Error(err)
			return
		}
		got, err := o.ReadAll(w.ctx)
		if err != nil || !bytes.Equal(got, data) {
			w.t.Errorf("write %d is read as %d other bytes: %v", n, len(got), err)
			return
		}
		w.last[i] = data
		w.done.Add(1)
	}
}

func (w *writing) until(what string, ok func() bool) {
	w.t.Helper()
	if !await(2*patience, func() bool { return ok() || w.t.Failed() }) || w.t.Failed() {
		w.t.Fatalf("waited for %s", what)
	}
}

// goOn waits until so many more writes are done.
func (w *writing) goOn(n int64) {
	w.t.Helper()
	due := w.done.Load() + n
	w.until("more writes", func() bool { return w.done.Load() >= due })
}

// end ends the writers. The real tool then reads the last data of each object.
func (w *writing) end() {
	w.t.Helper()
	w.over.Store(true)
	w.writers.Wait()
	for i, want := range w.last {
		if got := w.c.rados("get", fmt.Sprint("object", i), "-"); !bytes.Equal(got, want) {
			w.t.Errorf("the real tool reads %d bytes of object %d that are not the last write", len(got), i)
		}
	}
	us := fmt.Sprintf(":0/%d ", w.cl.Messenger().Addrs()[0].Nonce)
	for _, line := range w.said.complaints(w.t) {
		if strings.Contains(line, us) {
			w.t.Errorf("a daemon complains about us: %s", line)
		}
	}
}
