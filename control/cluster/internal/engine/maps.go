package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// view is a map as machines ask it.
type view struct {
	m         *osdmap.Map
	e         *Engine
	distances func() map[int32]int32 // of OSDs from the client, computed once
}

// known is the view as a machine takes it; nil: there is no map.
func (v *view) known() machine.Map {
	if v == nil {
		return nil
	}
	return v
}

func (v *view) Epoch() uint32              { return v.m.Epoch }
func (v *view) Flags() uint32              { return v.m.Flags }
func (v *view) Pool(id int64) *osdmap.Pool { return v.m.Pool(id) }

func (v *view) Place(o osdop.Object, pick int) machine.Place {
	p := machine.Place{Hash: o.Hash}
	switch {
	case o.ByHash:
		p.PG = v.m.Group(o.Pool, o.Hash)
	case o.Locator != "":
		p.PG, p.Hash = v.m.Locate(o.Pool, o.Namespace, o.Locator)
	default:
		p.PG, p.Hash = v.m.Locate(o.Pool, o.Namespace, o.Name)
	}
	scratch := v.e.scratches.Get().(*osdmap.Scratch)
	at := v.m.Place(scratch, p.PG)
	p.Shard, p.Primary, p.UpPrimary = at.Shard, at.Primary, at.UpPrimary
	p.Sets(at.Acting, at.Up, pick, v.distances)
	v.e.scratches.Put(scratch)
	return p
}

func (v *view) Addr(osd int32) wire.Addr { return v.e.monitors.Prefer(v.m.Addrs(osd)) }

// maxSteps bounds the maps that are taken of one message: a small change can need the memory of a large map.
// Monitors send 40 at a time.
const maxSteps = 64

// step is a map; skipped says that some before it are not known.
type step struct {
	m       *osdmap.Map
	skipped bool
}

// takeMaps takes maps that a monitor or an OSD sends. It is called on a core.
func (e *Engine) takeMaps(msg *control.Message) {
	var steps []step
	var r rest
	got, err := mon.DecodeOSDMaps(msg.Front)
	e.moving.Lock()
	if err == nil {
		steps, err = advance(e.newest.Load(), &got)
	}
	if err != nil {
		e.cfg.Logger.Warn("osdmap", "err", err)
		e.badMap.Store(&err)
	}
	if len(steps) > 0 {
		if err == nil {
			e.badMap.Store(nil)
		}
		r = e.togetherLocked(func() { e.changeLocked(steps) })
		close(e.news)
		e.news = make(chan struct{})
	}
	if m := e.newest.Load(); m != nil && got.Epoch() > m.Epoch {
		e.follow(m.Epoch + 1) // there is a gap
	}
	e.moving.Unlock()
	e.finish(&r)
}

// changeLocked gives maps to all shards.
func (e *Engine) changeLocked(steps []step) {
	for _, n := range steps {
		e.cur = &view{n.m, e, sync.OnceValue(func() map[int32]int32 { return n.m.Distances(e.cfg.Location) })}
		for _, s := range e.shards {
			s.m.Map(e.cur, n.skipped)
		}
		e.exchangeLocked()
	}
	for _, s := range e.shards {
		s.m.Settle()
	}
	e.newest.Store(e.cur.m)
}

// follow asks the monitors for maps, once between two ticks for all shards.
func (e *Engine) follow(epoch uint32) {
	if next := uint64(epoch) + 1; e.asked.Swap(next) != next {
		_ = e.monitors.FollowOSDMap(epoch) // fails only if the messenger has ended
	}
}

// advance applies the maps of a message to m, nil for none, one epoch after the other, and where one is
// missing goes on with the newest whole map: so many as one message may bring. With an error it returns the
// maps before it.
func advance(m *osdmap.Map, got *mon.OSDMaps) (steps []step, err error) {
	if m != nil && m.FSID != got.FSID {
		return nil, fmt.Errorf("%w: an osdmap of cluster %v, not %v", ErrMessage, got.FSID, mon.FSID(m.FSID))
	}
	var whole uint32
	for epoch := range got.Full {
		whole = max(whole, epoch)
	}
	for len(steps) < maxSteps {
		next := step{}
		if m != nil && got.Incremental[m.Epoch+1] != nil {
			var n *osdmap.Incremental
			if n, err = osdmap.DecodeIncremental(got.Incremental[m.Epoch+1]); err == nil {
				next.m, err = n.Apply(m)
			}
		} else if whole > 0 && (m == nil || whole > m.Epoch) {
			next.skipped = m != nil && whole > m.Epoch+1
			next.m, err = osdmap.Decode(got.Full[whole])
			if n := next.m; err == nil && (n.Epoch != whole || n.FSID != got.FSID) {
				err = fmt.Errorf("osdmap %d of %v is sent as %d of %v", n.Epoch, mon.FSID(n.FSID), whole, got.FSID)
			}
		} else {
			break
		}
		if err != nil {
			return steps, fmt.Errorf("%w: %w", ErrMessage, err)
		}
		m, steps = next.m, append(steps, next)
	}
	return steps, nil
}

// Map is the newest map; nil: none has come. Any goroutine.
func (e *Engine) Map() *osdmap.Map { return e.newest.Load() }

// WaitEpoch waits for a map of this epoch or a newer one, 0: for any map, and returns the newest.
func (e *Engine) WaitEpoch(ctx context.Context, epoch uint32) (*osdmap.Map, error) {
	for {
		e.moving.Lock()
		news, m := e.news, e.newest.Load()
		e.moving.Unlock()
		next := uint32(0)
		if m != nil {
			if next = m.Epoch + 1; m.Epoch >= epoch {
				return m, nil
			}
		}
		if err := e.monitors.FollowOSDMap(next); err != nil {
			return nil, err
		}
		select {
		case <-news:
		case <-e.ctx.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			text := "no osdmap came"
			if m != nil {
				text = fmt.Sprintf("osdmap %d did not come, have %d", epoch, m.Epoch)
			}
			return nil, errors.Join(context.Cause(ctx), errors.New(text), e.noMap())
		}
	}
}

// noMap is why no map comes; nil: nothing is known.
func (e *Engine) noMap() error {
	err := e.monitors.Err()
	if bad := e.badMap.Load(); bad != nil {
		err = errors.Join(err, *bad)
	}
	return err
}

// newestLocked asks the monitors for the newest epoch, on a goroutine.
func (s *shard) newestLocked() {
	e := s.e
	e.running.Go(func() {
		epoch, err := e.monitors.NewestOSDMap(e.ctx)
		if err != nil { // the machine asks again, not as fast as monitors answer
			epoch = 0
			select {
			case <-time.After(time.Second):
			case <-e.ctx.Done():
			}
		}
		s.mu.Lock()
		if !e.over.Load() {
			s.m.Newest(epoch)
		}
		s.unlock()
	})
}
