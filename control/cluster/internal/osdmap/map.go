package osdmap

import (
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/crush"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Bounds of a map, however many incremental ones lead to it. Clusters have a tenth of it.
const (
	maxOSDs       = 1 << 18
	maxPools      = 1 << 16
	maxName       = 1 << 12 // bytes of the name of a pool
	maxExceptions = 1 << 20 // placement groups with an exception
)

// maxSet is the most OSDs of one placement group, and exceptions for one.
const maxSet = crush.MaxResult

// PG is a placement group: a pool, and a number below the pool's number of groups.
type PG struct {
	Pool int64
	Seed uint32
}

// Flags of a map.
const (
	Full        = 1 << 1 // writes wait
	PauseReads  = 1 << 2
	PauseWrites = 1 << 3
)

// Map is the map of one epoch. It does not change, and any goroutine may use it.
type Map struct {
	FSID  [16]byte
	Epoch uint32
	Flags uint32

	pools map[int64]*Pool
	names map[int64]string // of pools
	osds  osds
	crush *crush.Map
	exceptions
	tables map[int64]*table // by pool
}

// exceptions are those for single placement groups. Vectors have at most maxSet elements.
type exceptions struct {
	pgTemp       map[PG][]int32
	primaryTemp  map[PG]int32
	upmap        map[PG][]int32
	upmapItems   map[PG][][2]int32 // from, to
	upmapPrimary map[PG]int32
}

// osds has the state of each OSD: slices of the same length.
type osds struct {
	states   []uint32
	weights  []uint32 // in 1/0x10000
	addrs    []wire.AddrVec
	affinity []uint32 // in 1/0x10000; nil: all of them the most
}

// Bits of states.
const (
	stateExists  = 1 << 0
	stateUp      = 1 << 1
	stateAutoOut = 1 << 2
	stateNew     = 1 << 3
	stateStop    = 1 << 12 // it is to stop

	wholeWeight = 0x10000 // and affinity
)

// Pool returns a pool; nil: there is none.
func (m *Map) Pool(id int64) *Pool { return m.pools[id] }

// PoolNames are the names of all pools, sorted.
func (m *Map) PoolNames() []string { return slices.Sorted(maps.Values(m.names)) }

// PoolName returns the name of a pool.
func (m *Map) PoolName(id int64) string { return m.names[id] }

// PoolID returns the number of a pool, of two with one name the lower; false: there is none of this name.
func (m *Map) PoolID(name string) (id int64, ok bool) {
	for i, n := range m.names {
		if n == name && m.pools[i] != nil && (!ok || i < id) {
			id, ok = i, true
		}
	}
	return id, ok
}

// Addrs returns the addresses of an OSD for clients, not to be changed; nil if it is not up.
func (m *Map) Addrs(osd int32) wire.AddrVec {
	if !m.has(osd, stateExists|stateUp) {
		return nil
	}
	return m.osds.addrs[osd]
}

// has says whether the state of an OSD has all these bits.
func (m *Map) has(osd int32, bits uint32) bool {
	return osd >= 0 && int(osd) < len(m.osds.states) && m.osds.states[osd]&bits == bits
}

// Decode reads a whole map, and keeps none of p.
func Decode(p []byte) (*Map, error) {
	m := &Map{}
	if err := sections(p, 0, clientVersion, 9, m.decode); err != nil {
		return nil, fmt.Errorf("osdmap: %w", err)
	}
	m.tables = m.newTables(nil)
	return m, nil
}

const (
	outerVersion  = 8 // of both kinds of map
	clientVersion = 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sections checks the crc of a map, which covers all but itself, and has decode read the section for clients,
// of the version known, or an older one down to oldest. So many bytes follow the crc.
func sections(p []byte, behind int, known, oldest uint8, decode func(r *wire.Reader, version uint8)) error {
	const head = 6
	r := wire.NewReader(p)
	size := 0
	atLeast := func(r *wire.Reader, version, oldest uint8) {
		if version < oldest {
			r.Fail(fmt.Errorf("%w: version %d", wire.ErrVersion, version))
		}
	}
	r.Envelope(outerVersion, func(version uint8, r *wire.Reader) {
		atLeast(r, version, 7)
		all := r.Len()
		skip(r) // the section for clients
		skip(r) // the one for OSDs
		size = all - r.Len()
		want := r.U32()
		if r.Skip(behind); r.Err() != nil {
			return
		}
		sum := crc32.Update(crc32.Checksum(p[:head+size], castagnoli), castagnoli, p[head+size+4:head+all])
		if ^sum != want {
			r.Fail(fmt.Errorf("%w: crc %#x, want %#x", wire.ErrMalformed, ^sum, want))
		}
	})
	if r.Len() > 0 {
		r.Fail(fmt.Errorf("%w: %d bytes behind the map", wire.ErrMalformed, r.Len()))
	}
	if err := r.Err(); err != nil {
		return err
	}
	r = wire.NewReader(p[head : head+size])
	r.Envelope(known, func(version uint8, r *wire.Reader) {
		atLeast(r, version, oldest)
		decode(r, version)
	})
	return r.Err()
}

// decode reads the section for clients.
func (m *Map) decode(r *wire.Reader, version uint8) {
	r.Copy(m.FSID[:])
	m.Epoch = r.U32()
	r.Skip(2 * 8) // created, modified
	m.pools = mapOf(r, 8+6, (*wire.Reader).S64, decodePool)
	m.names = mapOf(r, 8+4, (*wire.Reader).S64, readName)
	r.S32() // the highest number of a pool
	m.Flags = r.U32()
	n := r.S32()
	o := &m.osds
	o.states, o.weights = r.U32s(), r.U32s()
	o.addrs = wire.ListOf(r, 5, (*wire.Reader).AddrVec)
	m.readTemps(r)
	o.affinity = r.U32s()
	blob := r.Blob()
	skipMaps(r) // profiles of erasure codes
	m.upmap = mapOf(r, pgSize+4, ReadPG, readSet)
	m.upmapItems = mapOf(r, pgSize+4, ReadPG, readPairs)
	r.U32() // version of the crush map
	skipSnaps(r)
	skipSnaps(r)
	r.Skip(2 * 8) // last changes
	if version >= 10 {
		m.upmapPrimary = mapOf(r, pgSize+4, ReadPG, (*wire.Reader).S32)
	}
	if r.Err() != nil {
		return
	}
	if k := len(o.states); n < 0 || n > maxOSDs || k != int(n) || len(o.weights) != k || len(o.addrs) != k ||
		o.affinity != nil && len(o.affinity) != k {
		r.Fail(fmt.Errorf("%w: %d osds, %d states, %d weights, %d addresses, %d affinities", wire.ErrMalformed,
			n, k, len(o.weights), len(o.addrs), len(o.affinity)))
		return
	}
	var err error
	if m.crush, err = crush.Decode(blob); err != nil {
		r.Fail(err)
	}
}

func (x *exceptions) readTemps(r *wire.Reader) {
	x.pgTemp = mapOf(r, pgSize+4, ReadPG, readSet)
	x.primaryTemp = mapOf(r, pgSize+4, ReadPG, (*wire.Reader).S32)
}

// mapOf reads a map, of which each entry has at least size bytes; nil: it is empty.
func mapOf[K comparable, V any](
	r *wire.Reader, size int, key func(*wire.Reader) K, value func(*wire.Reader) V,
) map[K]V {
	n := r.Count(size)
	if n == 0 {
		return nil
	}
	out := make(map[K]V)
	for i := 0; i < n && r.Err() == nil; i++ {
		k := key(r)
		out[k] = value(r)
	}
	return out
}

// readName reads the name of a pool.
func readName(r *wire.Reader) string {
	b := r.Blob()
	if len(b) > maxName {
		r.Fail(fmt.Errorf("%w: name of %d bytes", wire.ErrMalformed, len(b)))
		return ""
	}
	return string(b)
}

const pgSize = 17

// ReadPG reads a placement group.
func ReadPG(r *wire.Reader) PG {
	r.U8() // version
	g := PG{Pool: r.S64(), Seed: r.U32()}
	r.S32() // a preferred OSD, of old
	return g
}

// readSet reads the OSDs of one placement group.
func readSet(r *wire.Reader) []int32 { return atMost(r, wire.ListOf(r, 4, (*wire.Reader).S32)) }

// readPairs reads the pairs of OSDs that are exchanged in one placement group.
func readPairs(r *wire.Reader) [][2]int32 {
	return atMost(r, wire.ListOf(r, 8, func(r *wire.Reader) [2]int32 { return [2]int32{r.S32(), r.S32()} }))
}

func atMost[V any](r *wire.Reader, list []V) []V {
	if len(list) > maxSet {
		r.Fail(fmt.Errorf("%w: %d osds of one placement group", wire.ErrMalformed, len(list)))
	}
	return list
}

// skip passes over a section.
func skip(r *wire.Reader) { r.Envelope(math.MaxUint8, func(uint8, *wire.Reader) {}) }

// skipStrings passes over a map of strings to strings.
func skipStrings(r *wire.Reader) {
	for range r.Count(8) {
		r.Blob()
		r.Blob()
	}
}

// skipMaps passes over a map of strings to maps of strings to strings, such as profiles of erasure codes.
func skipMaps(r *wire.Reader) {
	for range r.Count(8) {
		r.Blob()
		skipStrings(r)
	}
}

// skipSnaps passes over the intervals of removed snapshots of pools.
func skipSnaps(r *wire.Reader) {
	for range r.Count(12) {
		r.S64()
		r.Skip(16 * r.Count(16))
	}
}
