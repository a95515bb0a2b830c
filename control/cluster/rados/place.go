package rados

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
)

// maps is the osdmap of a client. Monitors send each new one once the first operation has asked
// for it; OSDs send those that they see a client lacks.
type maps struct {
	newest  atomic.Pointer[osdmap.Map] // nil: none yet; stored under mu
	scratch sync.Pool                  // of *osdmap.Scratch

	mu       sync.Mutex
	followed bool                // the monitors were asked
	asked    uint32              // the epoch that was asked for last, to fill a gap
	err      error               // why the last message was of no use; nil: it was
	news     chan struct{}       // closed, and replaced, with each new map and each error
	underway map[*request]func() // has the request sent again
}

// receive takes maps that a monitor or an OSD sends. It is called on a core.
func (c *Client) receive(m *control.Message) {
	got, err := mon.DecodeOSDMaps(m.Front)
	if err == nil {
		c.take(&got)
		return
	}
	c.maps.mu.Lock()
	c.maps.failLocked(err)
	c.maps.mu.Unlock()
}

func (s *maps) failLocked(err error) {
	s.err = err
	close(s.news)
	s.news = make(chan struct{})
}

// take makes the newest of these maps ours, and has the requests sent again whose place it changes.
func (c *Client) take(got *mon.OSDMaps) {
	s := &c.maps
	s.mu.Lock()
	before := s.newest.Load()
	m, err := advance(before, got)
	if err != nil || m == before {
		if err != nil {
			s.failLocked(err)
		}
		s.mu.Unlock()
		return
	}
	s.newest.Store(m)
	s.failLocked(nil)
	for r, again := range s.underway {
		if p, err := c.placeBy(m, r); err != nil || !p.same(&r.place) {
			again()
		}
	}
	gap := got.Epoch() > m.Epoch && s.asked != m.Epoch+1
	if gap {
		s.asked = m.Epoch + 1
	}
	s.mu.Unlock()
	if gap {
		_ = c.mon.FollowOSDMap(m.Epoch + 1) // fails only if the messenger has ended
	}
}

// advance applies maps of a message to m, nil for none, one epoch after the other, and where one is missing
// goes on with the newest whole map.
func advance(m *osdmap.Map, got *mon.OSDMaps) (*osdmap.Map, error) {
	if m != nil && m.FSID != got.FSID {
		return m, fmt.Errorf("%w: an osdmap of cluster %v, not %v", ErrMessage, got.FSID, mon.FSID(m.FSID))
	}
	var whole uint32
	for epoch := range got.Full {
		whole = max(whole, epoch)
	}
	for {
		var next *osdmap.Map
		var err error
		if m != nil && got.Incremental[m.Epoch+1] != nil {
			var n *osdmap.Incremental
			if n, err = osdmap.DecodeIncremental(got.Incremental[m.Epoch+1]); err == nil {
				next, err = n.Apply(m)
			}
		} else if whole > 0 && (m == nil || whole > m.Epoch) {
			next, err = osdmap.Decode(got.Full[whole])
			if err == nil && (next.Epoch != whole || next.FSID != got.FSID) {
				err = fmt.Errorf("osdmap %d of %v is sent as %d of %v", next.Epoch, mon.FSID(next.FSID), whole, got.FSID)
			}
		} else {
			return m, nil
		}
		if err != nil {
			return m, fmt.Errorf("%w: %w", ErrMessage, err)
		}
		m = next
	}
}

// osdmap is the newest map. The first one is waited for.
func (c *Client) osdmap(ctx context.Context) (*osdmap.Map, error) {
	s := &c.maps
	for {
		if m := s.newest.Load(); m != nil {
			return m, nil
		}
		s.mu.Lock()
		news, err, first := s.news, s.err, !s.followed
		s.followed = true
		s.mu.Unlock()
		if first {
			if err := c.mon.FollowOSDMap(0); err != nil {
				return nil, err
			}
		}
		if late := c.newer(ctx, news); late != nil {
			return nil, errors.Join(fmt.Errorf("%w: no osdmap came: %w", mon.ErrNoAnswer, late), err)
		}
	}
}

// newer waits for news. If there are none for long it asks for them again: the monitors sent a map that was
// of no use, or none.
func (c *Client) newer(ctx context.Context, news <-chan struct{}) error {
	t := time.NewTimer(resendAfter)
	defer t.Stop()
	select {
	case <-news:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
	}
	s := &c.maps
	s.mu.Lock()
	m := s.newest.Load()
	if s.err != nil {
		m = nil
	}
	s.mu.Unlock()
	if m == nil {
		return c.mon.FollowOSDMap(0)
	}
	return c.mon.FollowOSDMap(m.Epoch + 1)
}

// place finds out where an object of the pool is.
func (c *Client) place(ctx context.Context, pool string, r *request) (place, error) {
	m, err := c.osdmap(ctx)
	if err != nil {
		return place{}, err
	}
	id, ok := m.PoolID(pool)
	if !ok { // a map that is on its way may have it
		got, err := c.mon.OSDMap(ctx)
		if err != nil {
			return place{}, err
		}
		c.take(&got)
		m = c.maps.newest.Load()
		if id, ok = m.PoolID(pool); !ok {
			return place{}, fmt.Errorf("pool %q: %w", pool, syscall.ENOENT)
		}
	}
	r.pool = id
	return c.placeBy(m, r)
}

// placeBy is where the object of a request is by this map. Cache tiers of its pool come first.
func (c *Client) placeBy(m *osdmap.Map, r *request) (place, error) {
	id := r.pool
	p := m.Pool(id)
	if p == nil {
		return place{}, fmt.Errorf("pool %d: %w", id, syscall.ENOENT)
	}
	if tier := p.Tier(r.op&opWrites != 0); tier >= 0 && m.Pool(tier) != nil {
		id = tier
	}
	group, hash := m.Locate(id, "", r.obj)
	scratch, _ := c.maps.scratch.Get().(*osdmap.Scratch)
	if scratch == nil {
		scratch = new(osdmap.Scratch)
	}
	at := m.Place(scratch, group)
	c.maps.scratch.Put(scratch)
	if at.Primary < 0 {
		return place{}, fmt.Errorf("%w: placement group %v", ErrNoOSD, group)
	}
	addr := c.mon.Prefer(m.Addrs(at.Primary))
	if addr.IsBlank() {
		return place{}, fmt.Errorf("%w: osd.%d is down or has no address", ErrNoOSD, at.Primary)
	}
	return place{group: group, shard: at.Shard, hash: hash, epoch: m.Epoch, osd: at.Primary, addr: addr}, nil
}

// watch calls again as soon as a map changes the place of a request, until stop.
func (c *Client) watch(r *request, again func()) (stop func()) {
	s := &c.maps
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underway[r] = again
	if p, err := c.placeBy(s.newest.Load(), r); err != nil || !p.same(&r.place) {
		again() // meanwhile
	}
	return func() {
		s.mu.Lock()
		delete(s.underway, r)
		s.mu.Unlock()
	}
}
