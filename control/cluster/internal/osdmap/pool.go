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
	Flags     uint64
	PGNum     uint32 // placement groups
	ReadTier  int64  // the pool where reads go; negative: this one
	WriteTier int64  // and writes
	Resend    uint32 // the newest epoch at which clients send everything again
	Snaps     []Snap // of the whole pool, in the order of their ids
	Kind      uint8
	Peering

	rule       uint8 // of the CRUSH map
	objectHash uint8
	pgpNum     uint32    // at most as many different placements
	nonPrimary [2]uint64 // the shards that are never primary, by bit
}

// Peering are the settings of a pool of which each change has its placement groups agree anew on what they
// have.
type Peering struct {
	Size, MinSize uint8     // OSDs of a placement group
	Pending       uint32    // the number of groups that a merge is about to leave
	Stretch       [4]uint32 // the rules of a pool that is stretched over sites
	Optimal       bool      // some shards are never primary
}

// Snap is a snapshot of a whole pool.
type Snap struct {
	ID   uint64
	Name string
	Time time.Time
}

// Kinds of pools.
const (
	PoolReplicated = 1
	poolErasure    = 3
)

// Replicated says that each OSD of a placement group has the whole object: an OSD that is missing leaves no
// hole, as positions mean nothing.
func (p *Pool) Replicated() bool { return p.Kind == PoolReplicated }

const poolVersion = 32

// decodePool reads pg_pool_t.
func decodePool(r *wire.Reader) *Pool {
	p := &Pool{}
	r.Envelope(poolVersion, func(version uint8, r *wire.Reader) {
		p.Kind, p.Size, p.rule, p.objectHash = r.U8(), r.U8(), r.U8(), r.U8()
		p.PGNum, p.pgpNum = r.U32(), r.U32()
		r.Skip(4 + 4 + 4 + 8 + 4) // localized groups, last change, newest snapshot and its epoch
		p.Snaps = wire.ListOf(r, 8+6, readSnap)
		r.Skip(16 * r.Count(16)) // removed snapshots
		r.U64()                  // owner
		p.Flags = r.U64()
		p.Optimal = p.Flags&poolECOptimal != 0
		r.U32() // crash replay
		p.MinSize = r.U8()
		r.Skip(8 + 8)          // quotas
		r.Skip(8 * r.Count(8)) // tiers
		r.Skip(8 + 1)          // tier of, cache mode
		p.ReadTier, p.WriteTier = r.S64(), r.S64()
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
		skipMaps(r)       // applications
		r.Skip(8 + 4 + 4) // created, numbers of groups that are aimed at
		p.Pending = r.U32()
		r.Skip(4 + 4)
		p.Resend = r.U32()
		r.U8() // autoscaling
		if version >= 29 {
			skip(r) // the last merge
		}
		if version == 30 || version >= 31 && r.Bool() {
			for i := range p.Stretch {
				p.Stretch[i] = r.U32()
			}
		}
		if version >= 32 {
			p.nonPrimary = [2]uint64{varint(r), varint(r)}
		}
	})
	if r.Err() == nil && (p.PGNum == 0 || p.pgpNum == 0 || p.Kind != PoolReplicated && p.Kind != poolErasure) {
		r.Fail(fmt.Errorf("%w: pool of type %d with %d placement groups, placed as %d", wire.ErrMalformed,
			p.Kind, p.PGNum, p.pgpNum))
	}
	return p
}

func readSnap(r *wire.Reader) (s Snap) {
	r.U64() // its id
	r.Envelope(2, func(_ uint8, r *wire.Reader) {
		s.ID, s.Time, s.Name = r.U64(), r.Utime(), r.Str()
	})
	return s
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

// neverPrimary says whether a shard may not be primary.
func (p *Pool) neverPrimary(shard int) bool {
	return p.Optimal && shard < 128 && p.nonPrimary[shard/64]>>(shard%64)&1 != 0
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
