package osdmap

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/crush"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Incremental is the change from one epoch to the next.
type Incremental struct {
	FSID  [16]byte
	Epoch uint32 // that it leads to

	full   *Map // in place of all else; nil: there is none
	flags  int32
	maxOSD int32
	crush  *crush.Map // nil: as before

	pools    map[int64]*Pool
	names    map[int64]string
	oldPools []int64

	ups        map[int32]wire.AddrVec
	states     map[int32]uint32
	weights    map[int32]uint32
	affinities map[int32]uint32

	exceptions      // an empty set is removed from pgTemp, Nobody from primaryTemp
	oldUpmap        []PG
	oldUpmapItems   []PG
	oldUpmapPrimary []PG
}

const incrementalVersion = 9

// DecodeIncremental reads the change to the next epoch, and keeps none of p.
func DecodeIncremental(p []byte) (*Incremental, error) {
	n := &Incremental{}
	// Behind it is the crc of the full map, which depends on how its writer encodes it.
	if err := sections(p, 4, incrementalVersion, 8, n.decode); err != nil {
		return nil, fmt.Errorf("incremental osdmap: %w", err)
	}
	return n, nil
}

// decode reads the section for clients.
func (n *Incremental) decode(r *wire.Reader, version uint8) {
	r.Copy(n.FSID[:])
	n.Epoch = r.U32()
	r.Skip(8) // modified
	r.S64()   // the highest number of a pool
	n.flags = r.S32()
	full, tree := r.Blob(), r.Blob()
	n.maxOSD = r.S32()
	n.pools = mapOf(r, 8+6, (*wire.Reader).S64, decodePool)
	n.names = mapOf(r, 8+4, (*wire.Reader).S64, readName)
	n.oldPools = wire.ListOf(r, 8, (*wire.Reader).S64)
	n.ups = mapOf(r, 4+5, (*wire.Reader).S32, (*wire.Reader).AddrVec)
	n.states = mapOf(r, 8, (*wire.Reader).S32, (*wire.Reader).U32)
	n.weights = mapOf(r, 8, (*wire.Reader).S32, (*wire.Reader).U32)
	n.readTemps(r)
	n.affinities = mapOf(r, 8, (*wire.Reader).S32, (*wire.Reader).U32)
	skipMaps(r)                            // profiles of erasure codes
	wire.ListOf(r, 4, (*wire.Reader).Blob) // profiles that are gone
	n.upmap = mapOf(r, pgSize+4, ReadPG, readSet)
	n.oldUpmap = wire.ListOf(r, pgSize, ReadPG)
	n.upmapItems = mapOf(r, pgSize+4, ReadPG, readPairs)
	n.oldUpmapItems = wire.ListOf(r, pgSize, ReadPG)
	skipSnaps(r)
	skipSnaps(r)
	r.Skip(2 * 8) // last changes
	if version >= 9 {
		n.upmapPrimary = mapOf(r, pgSize+4, ReadPG, (*wire.Reader).S32)
		n.oldUpmapPrimary = wire.ListOf(r, pgSize, ReadPG)
	}
	if r.Err() != nil {
		return
	}
	if n.maxOSD > maxOSDs {
		r.Fail(fmt.Errorf("%w: %d osds", wire.ErrMalformed, n.maxOSD))
		return
	}
	var err error
	if len(full) > 0 {
		if n.full, err = Decode(full); err == nil && (n.full.FSID != n.FSID || n.full.Epoch != n.Epoch) {
			err = fmt.Errorf("%w: the full map in it has epoch %d, not %d, or another cluster", wire.ErrMalformed,
				n.full.Epoch, n.Epoch)
		}
	}
	if len(tree) > 0 && err == nil {
		n.crush, err = crush.Decode(tree)
	}
	if err != nil {
		r.Fail(err)
	}
}

// Apply returns the map of the next epoch, and leaves m as it is. Errors wrap wire.ErrMalformed: it leads from another map, or to
// none.
func (n *Incremental) Apply(m *Map) (*Map, error) {
	if n.FSID != m.FSID || n.Epoch != m.Epoch+1 {
		return nil, fmt.Errorf("incremental osdmap: %w: %d of %x after %d of %x", wire.ErrMalformed, n.Epoch, n.FSID, m.Epoch, m.FSID)
	}
	if n.full != nil {
		return n.full, nil
	}
	next := *m
	next.Epoch = n.Epoch
	if n.flags >= 0 {
		next.Flags = uint32(n.flags)
	}
	next.pools = changed(m.pools, n.pools, n.oldPools, nil)
	next.names = changed(m.names, n.names, n.oldPools, nil)
	if err := n.applyOSDs(&next.osds); err != nil {
		return nil, err
	}
	next.pgTemp = changed(m.pgTemp, n.pgTemp, nil, func(v []int32) bool { return len(v) == 0 })
	next.primaryTemp = changed(m.primaryTemp, n.primaryTemp, nil, func(v int32) bool { return v == Nobody })
	next.upmap = changed(m.upmap, n.upmap, n.oldUpmap, nil)
	next.upmapItems = changed(m.upmapItems, n.upmapItems, n.oldUpmapItems, nil)
	next.upmapPrimary = changed(m.upmapPrimary, n.upmapPrimary, n.oldUpmapPrimary, nil)
	all := len(next.pgTemp) + len(next.primaryTemp) + len(next.upmap) + len(next.upmapItems) + len(next.upmapPrimary)
	if len(next.pools) > maxPools || len(next.names) > maxPools || all > maxExceptions {
		return nil, fmt.Errorf("incremental osdmap: %w: %d pools, %d exceptions", wire.ErrMalformed,
			len(next.pools), all)
	}
	if n.crush != nil {
		next.crush = n.crush
	}
	next.tables = next.newTables(m)
	return &next, nil
}

// changed returns m with the entries of set, and without those of old and those that are gone.
func changed[K comparable, V any](m, set map[K]V, old []K, gone func(V) bool) map[K]V {
	if len(set)+len(old) == 0 {
		return m
	}
	m = maps.Clone(m)
	if m == nil {
		m = make(map[K]V, len(set))
	}
	for k, v := range set {
		if m[k] = v; gone != nil && gone(v) {
			delete(m, k)
		}
	}
	for _, k := range old {
		delete(m, k)
	}
	return m
}

func (n *Incremental) applyOSDs(o *osds) error {
	if n.maxOSD >= 0 {
		o.resize(int(n.maxOSD))
	}
	named := slices.AppendSeq(slices.Collect(maps.Keys(n.weights)), maps.Keys(n.affinities))
	named = slices.AppendSeq(slices.AppendSeq(named, maps.Keys(n.states)), maps.Keys(n.ups))
	for _, osd := range named {
		if osd < 0 || int(osd) >= len(o.states) {
			return fmt.Errorf("incremental osdmap: %w: osd.%d of %d", wire.ErrMalformed, osd, len(o.states))
		}
	}
	if len(n.weights)+len(n.states)+len(n.ups) > 0 {
		o.states, o.weights, o.addrs = slices.Clone(o.states), slices.Clone(o.weights), slices.Clone(o.addrs)
	}
	o.affinity = slices.Clone(o.affinity)
	for osd, weight := range n.weights {
		if o.weights[osd] = weight; weight != 0 { // all daemons take it to exist then
			o.states[osd] = o.states[osd]&^(stateAutoOut|stateNew) | stateExists
		}
	}
	for osd, affinity := range n.affinities {
		if o.affinity == nil {
			o.affinity = slices.Repeat([]uint32{wholeWeight}, len(o.states))
		}
		o.affinity[osd] = affinity
	}
	for osd, bits := range n.states {
		o.toggle(osd, bits)
	}
	for osd, addrs := range n.ups {
		o.states[osd] = (o.states[osd] | stateExists | stateUp) &^ stateStop
		o.addrs[osd] = addrs
	}
	return nil
}

// toggle changes bits of a state; 0 stands for up. An OSD that ceases to exist loses all it has.
func (o *osds) toggle(osd int32, bits uint32) {
	if bits == 0 {
		bits = stateUp
	}
	if o.states[osd]&bits&stateExists == 0 {
		o.states[osd] ^= bits
		return
	}
	o.states[osd], o.addrs[osd] = 0, nil
	if o.affinity != nil {
		o.affinity[osd] = wholeWeight
	}
}

// resize cuts off OSDs, or adds some that do not exist.
func (o *osds) resize(n int) {
	o.states, o.weights, o.addrs = resized(o.states, n, 0), resized(o.weights, n, 0), resized(o.addrs, n, nil)
	if o.affinity != nil {
		o.affinity = resized(o.affinity, n, wholeWeight)
	}
}

// resized returns a copy of n elements.
func resized[V any](s []V, n int, more V) []V {
	s = slices.Clone(s[:min(len(s), n)])
	for len(s) < n {
		s = append(s, more)
	}
	return s
}
