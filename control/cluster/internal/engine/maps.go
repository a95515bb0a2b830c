package engine

import (
	"context"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// view is a map as the machine asks it. Owner: Engine.mu.
type view struct {
	m       *osdmap.Map
	scratch *osdmap.Scratch
	prefer  func(wire.AddrVec) wire.Addr
}

func (v *view) Epoch() uint32 { return v.m.Epoch }
func (v *view) Flags() uint32 { return v.m.Flags }

func (v *view) Pool(id int64) (machine.Pool, bool) {
	p := v.m.Pool(id)
	if p == nil {
		return machine.Pool{}, false
	}
	return machine.Pool{
		Flags: p.Flags(), ReadTier: p.Tier(false), WriteTier: p.Tier(true), Groups: p.PGNum(), Forced: p.ForcedResend(),
		Replicated: p.Replicated(), Peering: p.Peering(),
	}, true
}

func (v *view) Place(o osdop.Object) machine.Place {
	p := machine.Place{Hash: o.Hash}
	switch {
	case o.ByHash:
		p.PG = v.m.Group(o.Pool, o.Hash)
	case o.Locator != "":
		p.PG, p.Hash = v.m.Locate(o.Pool, o.Namespace, o.Locator)
	default:
		p.PG, p.Hash = v.m.Locate(o.Pool, o.Namespace, o.Name)
	}
	at := v.m.Place(v.scratch, p.PG)
	p.Shard, p.Primary, p.UpPrimary, p.Acting, p.Up = at.Shard, at.Primary, at.UpPrimary, at.Acting, at.Up
	return p
}

func (v *view) Addr(osd int32) wire.Addr { return v.prefer(v.m.Addrs(osd)) }

// takeMaps takes maps that a monitor or an OSD sends. It is called on a core.
func (e *Engine) takeMaps(msg *control.Message) {
	got, err := mon.DecodeOSDMaps(msg.Front)
	e.mu.Lock()
	before := e.newest
	if err == nil {
		err = advance(e.newest, &got, func(m *osdmap.Map, skipped bool) {
			e.newest = m
			e.published.Store(m)
			e.m.Map(&view{m, e.scratch, e.cfg.Monitors.Prefer}, skipped)
		})
	}
	if err != nil {
		e.cfg.Logger.Warn("osdmap", "err", err)
		e.badMap = err
	}
	if e.newest != before {
		if err == nil {
			e.badMap = nil
		}
		e.m.Settle()
		close(e.news)
		e.news = make(chan struct{})
	}
	if e.newest != nil && got.Epoch() > e.newest.Epoch && e.gap != e.newest.Epoch {
		e.gap = e.newest.Epoch
		_ = e.cfg.Monitors.FollowOSDMap(e.newest.Epoch + 1) // fails only if the messenger has ended
	}
	e.unlock()
}

// advance applies the maps of a message to m, nil for none, one epoch after the other, and where one is missing goes
// on with the newest whole map. It gives each to take; skipped says that some before it are not known.
func advance(m *osdmap.Map, got *mon.OSDMaps, take func(m *osdmap.Map, skipped bool)) error {
	if m != nil && m.FSID != got.FSID {
		return fmt.Errorf("%w: an osdmap of cluster %v, not %v", ErrMessage, got.FSID, mon.FSID(m.FSID))
	}
	var whole uint32
	for epoch := range got.Full {
		whole = max(whole, epoch)
	}
	for {
		var next *osdmap.Map
		var err error
		skipped := false
		if m != nil && got.Incremental[m.Epoch+1] != nil {
			var n *osdmap.Incremental
			if n, err = osdmap.DecodeIncremental(got.Incremental[m.Epoch+1]); err == nil {
				next, err = n.Apply(m)
			}
		} else if whole > 0 && (m == nil || whole > m.Epoch) {
			skipped = m != nil && whole > m.Epoch+1
			next, err = osdmap.Decode(got.Full[whole])
			if err == nil && (next.Epoch != whole || next.FSID != got.FSID) {
				err = fmt.Errorf("osdmap %d of %v is sent as %d of %v", next.Epoch, mon.FSID(next.FSID), whole, got.FSID)
			}
		} else {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrMessage, err)
		}
		m = next
		take(m, skipped)
	}
}

// Map is the newest map; nil: none has come. Any goroutine.
func (e *Engine) Map() *osdmap.Map { return e.published.Load() }

// WaitEpoch waits for a map of this epoch or a newer one; 0: for any map.
func (e *Engine) WaitEpoch(ctx context.Context, epoch uint32) error {
	for {
		e.mu.Lock()
		news, m := e.news, e.newest
		e.mu.Unlock()
		if m != nil && m.Epoch >= epoch {
			return nil
		}
		next := uint32(0)
		if m != nil {
			next = m.Epoch + 1
		}
		if err := e.cfg.Monitors.FollowOSDMap(next); err != nil {
			return err
		}
		select {
		case <-news:
		case <-e.closed:
			return ErrClosed
		case <-ctx.Done():
			e.mu.Lock()
			bad := e.badMap
			e.mu.Unlock()
			text := "no osdmap came"
			if m != nil {
				text = fmt.Sprintf("osdmap %d did not come, have %d", epoch, m.Epoch)
			}
			return joined(context.Cause(ctx), fmt.Errorf("%s", text), e.cfg.Monitors.Err(), bad)
		}
	}
}

// newestLocked asks the monitors for the newest epoch, on a goroutine.
func (e *Engine) newestLocked() {
	e.running.Add(1)
	go func() {
		defer e.running.Done()
		epoch, err := e.cfg.Monitors.NewestOSDMap(e.ctx)
		if err != nil {
			epoch = 0
		}
		e.mu.Lock()
		if !e.over {
			e.m.Newest(epoch)
		}
		e.unlock()
	}()
}
