package machine

import (
	"cmp"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Place is where an object is.
type Place struct {
	PG                          osdmap.PG
	Hash                        uint32
	Shard                       int8
	Primary, UpPrimary, Replica int32  // Replica: the OSD of the acting set that was chosen; negative: there are no two
	index                       int    // of the primary in the acting set
	acting, up                  uint64 // fingerprints; 0: the set is empty
}

// Nearest is the Op.Pick of the OSD that is the nearest to the client.
const Nearest = -1

// Sets says which OSDs serve the object, and which are to. pick chooses among the former: by a number, or by
// their distances from the client. An OSD that has none is behind all others, and of several with one
// distance the first is taken, which is the primary.
func (p *Place) Sets(acting, up []int32, pick int, distances func() map[int32]int32) {
	p.index, p.acting, p.up, p.Replica = slices.Index(acting, p.Primary), fingerprint(acting), fingerprint(up), Nobody
	switch {
	case len(acting) < 2:
	case pick >= 0:
		p.Replica = acting[pick%len(acting)]
	default:
		all := distances() // all are above 0: without one an OSD has the largest uint32
		far := func(osd int32) uint32 { return uint32(all[osd]) - 1 }
		p.Replica = slices.MinFunc(acting, func(a, b int32) int { return cmp.Compare(far(a), far(b)) })
	}
}

// target is the place of an operation, by the newest map.
type target struct {
	exists bool
	pool   uint64       // flags of the pool that was named; PoolEIO also of the one where it goes
	object osdop.Object // in the pool where it goes, which may be a cache
	Place
	osd     int32 // that gets it; negative: none
	replica bool
	groups  uint32
	forced  uint32  // the newest epoch that has everything sent again
	full    [2]bool // the cluster, and the pool where it goes
	// Of watches and of reads from replicas, for which each new interval counts.
	peering osdmap.Peering
	flags   uint32
}

var nowhere = target{osd: Nobody}

// intervalFlags are those of a map of which each change begins a new interval of all groups:
// the order of objects, and deletes during recovery.
const intervalFlags = 1<<15 | 1<<19

// locate finds the target of an operation by a map; nil: none has come. It does not exist if the pool does
// not.
func locate(cur Map, o *Op) target {
	if cur == nil {
		return nowhere
	}
	base := cur.Pool(o.target.Pool)
	if base == nil {
		return nowhere
	}
	t := target{exists: true, pool: base.Flags, object: o.target, forced: base.Resend}
	pool, write := base, o.flags&osdop.FlagWrite != 0
	tier := func(id int64, applies bool) { // where it goes in place of the pool, if there is one
		if p := cur.Pool(id); applies && id >= 0 && p != nil && o.flags&osdop.IgnoreOverlay == 0 {
			t.object.Pool, pool = id, p
		}
	}
	tier(base.ReadTier, o.flags&osdop.FlagRead != 0)
	tier(base.WriteTier, write)
	t.Place = cur.Place(t.object, o.Pick)
	t.groups, t.peering, t.flags = pool.PGNum, pool.Peering, cur.Flags()&intervalFlags
	t.full = [2]bool{cur.Flags()&osdmap.Full != 0, pool.Flags&osdmap.PoolFull != 0}
	t.pool |= pool.Flags & osdmap.PoolEIO
	t.osd = t.Primary
	if o.flags&osdop.AnyReplica != 0 && !write && pool.Replicated() && t.Replica >= 0 {
		t.osd, t.replica = t.Replica, true
	}
	if cur.Addr(t.osd).IsBlank() {
		t.osd = Nobody
	}
	return t
}

// spread makes numbers that follow each other differ in all bits.
func spread(n uint64) uint64 {
	n *= 0x9e3779b97f4a7c15
	return n ^ n>>32
}

// fingerprint tells sets of OSDs apart.
func fingerprint(set []int32) uint64 {
	if len(set) == 0 {
		return 0
	}
	h := uint64(len(set))
	for _, osd := range set {
		h = spread(h ^ uint64(uint32(osd))<<20)
	}
	return h | 1
}

// moves says that an operation which was sent to t must be sent again to u. A primary drops those from before it
// was the primary, a replica those from before the interval.
func (t *target) moves(u *target) bool {
	return t.PG != u.PG || t.osd != u.osd || t.Primary != u.Primary || t.index != u.index || t.Shard != u.Shard ||
		(t.acting == 0) != (u.acting == 0) || (t.replica || u.replica) && t.renews(u) || t.forced != u.forced || t.splits(u)
}

// splits says that the group, which is the same, is split, or that others are merged into it.
func (t *target) splits(u *target) bool {
	return t.groups != u.groups && osdmap.Splits(t.PG.Seed, min(t.groups, u.groups), max(t.groups, u.groups))
}

// begins says that u is another interval of the group: watches must be registered again.
func (t *target) begins(u *target) bool { return t.moves(u) || t.renews(u) }

// renews says that u is another interval, though a primary goes on with its operations.
func (t *target) renews(u *target) bool {
	return t.acting != u.acting || t.up != u.up || t.UpPrimary != u.UpPrimary || t.peering != u.peering || t.flags != u.flags
}
