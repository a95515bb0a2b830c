package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// world are OSDs of ours with the maps of a real cluster that changes. Each obeys the newest map, which the client may not have.
type world struct {
	cluster
	mu      sync.Mutex
	maps    []*osdmap.Map
	scratch osdmap.Scratch
	osds    map[string]wire.Addr // by the address in the maps
	all     []*control.Messenger // of the OSDs
	applied map[uint64]bool      // transactions
	last    map[string]uint64    // the last write on each object
}

func (w *world) Prefer(addrs wire.AddrVec) wire.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(addrs) == 0 {
		return wire.Addr{}
	}
	return w.osds[addrs[0].String()]
}

// place is the group of an object and its primary.
func (w *world) place(m *osdmap.Map, pool int64, name string) (osdmap.PG, string) {
	pg, _ := m.Locate(pool, "", name)
	addrs := m.Addrs(m.Place(&w.scratch, pg).Primary)
	if len(addrs) == 0 {
		return pg, ""
	}
	return pg, addrs[0].String()
}

// serve answers a write, unless it is of an interval before the present one of its group.
func (w *world) serve(addr string, conn *control.Conn, m *control.Message) {
	pool, seq, name := int64(le.Uint64(m.Data)), le.Uint64(m.Data[8:]), string(m.Data[16:])
	w.mu.Lock()
	defer w.mu.Unlock()
	newest := w.maps[len(w.maps)-1]
	pg, primary := w.place(newest, pool, name)
	for _, before := range w.maps[le.Uint32(m.Front[28:])-w.maps[0].Epoch:] {
		if g, p := w.place(before, pool, name); g != pg || p != addr || primary != addr {
			return
		}
	}
	if key := fmt.Sprint(pool, name); !w.applied[m.TID] {
		if w.applied[m.TID] = true; w.last[key]+1 != seq {
			w.t.Errorf("%s: write %d takes effect behind %d", key, seq, w.last[key])
		}
		w.last[key] = seq
	}
	_ = conn.Send(reply(m, 0, nil))
}

func startWorld(t *testing.T, maps []*osdmap.Map) *world {
	w := &world{cluster: cluster{t: t}, maps: maps[:1], osds: map[string]wire.Addr{}, applied: map[uint64]bool{}, last: map[string]uint64{}}
	for i := range maps {
		addrs := maps[i].Addrs(int32(i % 16))
		if addrs == nil || !w.osds[addrs[0].String()].IsBlank() {
			continue
		}
		real := addrs[0].String()
		m := messenger(t, wire.OSD, 1, &control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
			if m.Type == osdop.TypeOp {
				w.serve(real, conn, m)
			}
			return true
		}})
		w.osds[real], w.all = bind(t, m), append(w.all, m)
	}
	w.e = New(w, Options{Operations: 100})
	w.e.Open(messenger(t, wire.Client, 2, w.e.Dispatcher(), func(cfg *control.Config, _ *control.Dispatcher) {
		cfg.Sending.QueueMessages = 4 // full now and then
	}))
	t.Cleanup(w.e.Close)
	return w
}

// Writes that goroutines begin on their objects take effect once and in their order, while maps have the objects move from OSD to OSD,
// connections break, and the bounds are reached.
func TestWritesKeepTheirOrderWhileMapsMoveTheirObjects(t *testing.T) {
	incs, wholes := chain(t, 232)
	pools := []string{"rep", "rep16", "ssd", "ec"}
	var maps []*osdmap.Map
	for epoch := uint32(30); wholes[epoch] != nil; epoch++ {
		m, err := osdmap.Decode(wholes[epoch])
		check(t, err)
		if !slices.ContainsFunc(pools, func(name string) bool { _, ok := m.PoolID(name); return !ok }) {
			maps = append(maps, m)
		}
	}
	first := maps[0]
	w := startWorld(t, maps)
	for i, served := len(maps)-1, false; !served; i-- { // in the end all are
		maps, served = maps[:i+1], true
		for k := range 12 {
			pool, _ := first.PoolID(pools[k%4])
			_, primary := w.place(maps[i], pool, fmt.Sprintf("%03d", k))
			served = served && primary != ""
		}
	}
	w.take(first, nil, wholes[first.Epoch])
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	over := make(chan struct{})
	var workers sync.WaitGroup
	for i := range 12 {
		workers.Go(func() {
			name := fmt.Sprintf("%03d", i)
			pool, _ := first.PoolID(pools[i%4])
			free := make(chan *Call, 16)
			for range cap(free) {
				free <- &Call{Done: func(c *Call) { free <- c }}
			}
			for seq := uint64(1); ; seq++ {
				c := <-free
				if c.Err != nil {
					t.Error(c.Err)
					return
				}
				select {
				case <-over:
					for range cap(free) - 1 {
						if c := <-free; c.Err != nil {
							t.Error(c.Err)
						}
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					if got := w.last[fmt.Sprint(pool, name)]; got != seq-1 {
						t.Errorf("object %s: %d of %d writes", name, got, seq-1)
					}
					return
				default:
				}
				data := append(le.AppendUint64(le.AppendUint64(nil, uint64(pool)), seq), name...)
				c.Request = osdop.Request{Target: osdop.Object{Pool: pool, Name: name}, Flags: osdop.FlagWrite, Ops: []osdop.Op{osdop.Input(osdop.CodeAppend, data)}}
				if err := w.e.Start(ctx, c); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, m := range maps[1:] {
		w.mu.Lock()
		w.maps = append(w.maps, m)
		seen := len(w.applied)
		w.mu.Unlock()
		brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond) // nothing may go on without the next map
		_ = msgrtest.Until(brief, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.applied) >= seen+10 || m.Epoch%4 == 0
		})
		cancel()
		w.take(m, incs[m.Epoch], nil)
		if m.Epoch%32 == 0 {
			for _, conn := range w.all[int(m.Epoch/32)%len(w.all)].Conns() {
				conn.MarkDown()
			}
		}
	}
	close(over)
	workers.Wait()
	t.Logf("%d writes", len(w.applied))
}
