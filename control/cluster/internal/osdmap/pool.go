package osdmap

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Flags of pools.
const (
	poolHashed    = 1 << 0  // the pool's number is hashed with that of the placement group
	PoolFull      = 1 << 1  // writes wait
	PoolQuota     = 1 << 10 // as its quota is used up
	PoolEIO       = 1 << 16 // each operation fails
	poolECOptimal = 1 << 19 // some shards are never primary
)

// Pool is a pool of one epoch. It does not change.
type Pool struct {
	size       uint8 // OSDs of a placement group
	pgNum      uint32
	flags      uint64
	readTier   int64 // pool where reads go; -1: this one
	writeTier  int64 // and writes
	kind       uint8 // replicated or erasure
	rule       uint8 // of the CRUSH map
	objectHash uint8
	pgpNum     uint32 // at most as many different placements
	minSize    uint8
	pending    uint32 // number of groups that a merge is about to leave
	snaps      []Snap
	resend     uint32 // newest epoch at which clients send everything again
	// stretch are the rules of a pool that is stretched over sites.
	stretch [4]uint32
	// nonPrimary are the shards that are never primary, by bit.
	nonPrimary [2]uint64
}

const (
	poolReplicated = 1
	poolErasure    = 3
)

const poolVersion = 32

// decodePool reads pg_pool_t.
func decodePool(r *wire.Reader) *Pool {
	p := &Pool{}
	r.Envelope(poolVersion, func(version uint8, r *wire.Reader) {
		p.kind, p.size, p.rule, p.objectHash = r.U8(), r.U8(), r.U8(), r.U8()
		p.pgNum, p.pgpNum = r.U32(), r.U32()
		r.Skip(4 + 4 + 4 + 8 + 4) // localized groups, last change, newest snapshot and its epoch
		for range r.Count(8 + 6) {
			r.U64()
			r.Envelope(2, func(_ uint8, r *wire.Reader) {
				s := Snap{ID: r.U64()}
				s.Time, s.Name = r.Utime(), r.Str()
				p.snaps = append(p.snaps, s)
			})
			if r.Err() != nil {
				return
			}
		}
		r.Skip(16 * r.Count(16)) // removed snapshots
		r.U64()                  // owner
		p.flags = r.U64()
		r.U32() // crash replay
		p.minSize = r.U8()
		r.Skip(8 + 8)          // quotas
		r.Skip(8 * r.Count(8)) // tiers
		r.Skip(8 + 1)          // tier of, cache mode
		p.readTier, p.writeTier = r.S64(), r.S64()
		if version < 28 {
			return
		}
		skipStrings(r) // properties
		skip(r)        // parameters of hit sets
		r.Skip(4 + 4 + 4 + 8 + 8 + 4*4)
		r.Blob() // profile of the erasure code
		r.Skip(4 + 4 + 8 + 4 + 4 + 1 + 1 + 4 + 4)
		skip(r) // options
		r.U32()
		for range r.Count(8) { // applications
			r.Blob()
			if skipStrings(r); r.Err() != nil {
				return
			}
		}
		r.Skip(8 + 4 + 4) // created, numbers of groups that are aimed at
		p.pending = r.U32()
		r.Skip(4 + 4)
		p.resend = r.U32()
		r.U8() // autoscaling
		if version >= 29 {
			skip(r) // the last merge
		}
		if version == 30 || version >= 31 && r.Bool() {
			for i := range p.stretch {
				p.stretch[i] = r.U32()
			}
		}
		if version >= 32 {
			p.nonPrimary = [2]uint64{varint(r), varint(r)}
		}
	})
	if r.Err() == nil && (p.pgNum == 0 || p.pgpNum == 0 || p.kind != poolReplicated && p.kind != poolErasure) {
		r.Fail(fmt.Errorf("%w: pool of type %d with %d placement groups, placed as %d", wire.ErrMalformed, p.kind, p.pgNum, p.pgpNum))
	}
	return p
}

// varint reads 7 bits a byte, the lowest first.
func varint(r *wire.Reader) uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b := r.U8()
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			break
		}
	}
	return v
}

// Tier is the pool where reads or writes go instead; negative: there is none.
func (p *Pool) Tier(write bool) int64 {
	if write {
		return p.writeTier
	}
	return p.readTier
}

// Snap is a snapshot of a whole pool.
type Snap struct {
	ID   uint64
	Name string
	Time time.Time
}

// Snaps are the snapshots of the pool, in the order of their ids. They are not to be changed.
func (p *Pool) Snaps() []Snap { return p.snaps }

// PGNum is the number of placement groups.
func (p *Pool) PGNum() uint32 { return p.pgNum }

// Flags are those of the pool (PoolFull and others).
func (p *Pool) Flags() uint64 { return p.flags }

// ForcedResend is the newest epoch at which clients send all operations on the pool again.
func (p *Pool) ForcedResend() uint32 { return p.resend }

// Replicated says that each OSD of a placement group has the whole object.
func (p *Pool) Replicated() bool { return p.kind == poolReplicated }

// Peering are the settings of which each change has the placement groups agree anew on what they have.
type Peering struct {
	Size, MinSize uint8
	Pending       uint32
	Stretch       [4]uint32
	Optimal       bool
}

// Peering returns these settings.
func (p *Pool) Peering() Peering {
	return Peering{p.size, p.minSize, p.pending, p.stretch, p.flags&poolECOptimal != 0}
}

// shifts says that an OSD that is missing leaves no hole: positions mean nothing.
func (p *Pool) shifts() bool { return p.kind == poolReplicated }

// neverPrimary says whether a shard may not be primary.
func (p *Pool) neverPrimary(shard int) bool {
	return p.flags&poolECOptimal != 0 && shard < 128 && p.nonPrimary[shard/64]>>(shard%64)&1 != 0
}

// stableMod is x modulo n so that few values change when n grows: by the next power of two, and where
// that is above n by half of it. n is not 0.
func stableMod(x, n uint32) uint32 {
	mask := uint32(1)<<bits.Len32(n-1) - 1
	if x&mask < n {
		return x & mask
	}
	return x & (mask >> 1)
}
