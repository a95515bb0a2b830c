package rados

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// place asks a monitor where an object of the pool is.
func (c *Client) place(ctx context.Context, pool, object string) (place, error) {
	out, err := c.mon.Command(ctx, map[string]string{"prefix": "osd map", "pool": pool, "object": object, "format": "json"})
	if err != nil {
		return place{}, err
	}
	p, err := decodePlace(out.Data)
	if err != nil {
		return place{}, err
	}
	p.addr, err = c.osdAddr(ctx, p)
	return p, err
}

// decodePlace reads the answer to "osd map".
func decodePlace(text []byte) (place, error) {
	var m struct {
		Epoch   uint32
		PoolID  int64  `json:"pool_id"`
		Raw     string `json:"raw_pgid"`
		Group   string `json:"pgid"`
		Primary int    `json:"acting_primary"`
	}
	m.Primary = -1
	if err := json.Unmarshal(text, &m); err != nil {
		return place{}, fmt.Errorf("%w: osd map: %w", ErrMessage, err)
	}
	p := place{pool: m.PoolID, epoch: m.Epoch, osd: m.Primary}
	for _, g := range []struct {
		text string
		to   *uint32
	}{{m.Raw, &p.hash}, {m.Group, &p.seed}} {
		pool, number, _ := strings.Cut(g.text, ".")
		v, err := strconv.ParseUint(number, 16, 32)
		if err != nil || pool != strconv.FormatInt(m.PoolID, 10) {
			return place{}, fmt.Errorf("%w: osd map: placement group %q of pool %d", ErrMessage, g.text, m.PoolID)
		}
		*g.to = uint32(v)
	}
	if p.osd < 0 {
		return place{}, fmt.Errorf("%w: placement group %s", ErrNoOSD, m.Group)
	}
	return p, nil
}

// osdAddr is the address of the OSD that has p.
func (c *Client) osdAddr(ctx context.Context, p place) (wire.Addr, error) {
	c.mu.Lock()
	epoch, addrs := c.addrEpoch, c.addrs
	c.mu.Unlock()
	if epoch != p.epoch {
		out, err := c.mon.Command(ctx, map[string]string{"prefix": "osd dump", "format": "json"})
		if err != nil {
			return wire.Addr{}, err
		}
		if epoch, addrs, err = decodeAddrs(out.Data, c.mon.Prefer); err != nil {
			return wire.Addr{}, err
		}
		c.mu.Lock()
		c.addrEpoch, c.addrs = epoch, addrs
		c.mu.Unlock()
	}
	a, ok := addrs[p.osd]
	if !ok {
		return wire.Addr{}, fmt.Errorf("%w: osd.%d is down or has no address", ErrNoOSD, p.osd)
	}
	return a, nil
}

// decodeAddrs reads the addresses in the answer to "osd dump", and takes those that
// prefer says.
func decodeAddrs(text []byte, prefer func(wire.AddrVec) wire.Addr) (epoch uint32, addrs map[int]wire.Addr, err error) {
	var dump struct {
		Epoch uint32
		OSDs  []struct {
			OSD, Up int
			Addrs   struct {
				Vec []struct {
					Type, Addr string
					Nonce      uint32
				} `json:"addrvec"`
			} `json:"public_addrs"`
		}
	}
	if err := json.Unmarshal(text, &dump); err != nil {
		return 0, nil, fmt.Errorf("%w: osd dump: %w", ErrMessage, err)
	}
	addrs = make(map[int]wire.Addr)
	for _, o := range dump.OSDs {
		var all wire.AddrVec
		for _, v := range o.Addrs.Vec {
			if o.Up != 1 || v.Type != "v2" && v.Type != "v1" {
				continue
			}
			a, err := wire.ParseAddr(fmt.Sprintf("%s:%s/%d", v.Type, v.Addr, v.Nonce))
			if err != nil {
				return 0, nil, fmt.Errorf("%w: osd dump: osd.%d: %w", ErrMessage, o.OSD, err)
			}
			all = append(all, a)
		}
		if a := prefer(all); !a.IsBlank() {
			addrs[o.OSD] = a
		}
	}
	return dump.Epoch, addrs, nil
}
