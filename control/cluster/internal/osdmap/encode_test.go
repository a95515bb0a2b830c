package osdmap

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// encoder writes maps for tests, and for the tools that judge them.
type encoder struct{ b []byte }

func (e *encoder) u8(v ...uint8) { e.b = append(e.b, v...) }
func (e *encoder) u32(v ...uint32) {
	for _, v := range v {
		e.b = binary.LittleEndian.AppendUint32(e.b, v)
	}
}
func (e *encoder) u64(v ...uint64) {
	for _, v := range v {
		e.b = binary.LittleEndian.AppendUint64(e.b, v)
	}
}
func (e *encoder) zeros(n int)   { e.b = append(e.b, make([]byte, n)...) }
func (e *encoder) str(s string)  { e.b = wire.AppendString(e.b, s) }
func (e *encoder) blob(p []byte) { e.b = wire.AppendBlob(e.b, p) }
func (e *encoder) section(version, compat uint8, body func()) {
	var mark int
	e.b, mark = wire.BeginEnvelope(e.b, version, compat)
	body()
	e.b = wire.EndEnvelope(e.b, mark)
}

func (e *encoder) list(n int, each func(i int)) {
	e.u32(uint32(n))
	for i := range n {
		each(i)
	}
}

func (e *encoder) pg(g PG) {
	e.u8(1)
	e.u64(uint64(g.Pool))
	e.u32(g.Seed, 1<<32-1)
}

func (e *encoder) sets(sets map[PG][]int32) {
	e.u32(uint32(len(sets)))
	for g, set := range sets {
		e.pg(g)
		e.list(len(set), func(i int) { e.u32(uint32(set[i])) })
	}
}

// encodeMap encodes a map of which tree is the crush map, in the version of release 16.
func encodeMap(m *Map, tree []byte) []byte {
	var e encoder
	n := len(m.osds.states)
	e.section(8, 7, func() {
		e.section(9, 1, func() { m.encodeClient(&e, n, tree) })
		e.section(9, 1, func() { encodeDaemons(&e, n) })
		e.u32(0) // crc
	})
	return reseal(e.b)
}

func (m *Map) encodeClient(e *encoder, n int, tree []byte) {
	e.b = append(e.b, m.FSID[:]...)
	e.u32(m.Epoch)
	e.zeros(16)
	e.u32(uint32(len(m.pools)))
	for id, p := range m.pools {
		e.u64(uint64(id))
		e.pool(p)
	}
	e.u32(uint32(len(m.names)))
	for id, name := range m.names {
		e.u64(uint64(id))
		e.str(name)
	}
	e.u32(100, m.Flags, uint32(n))
	e.list(n, func(i int) { e.u32(m.osds.states[i]) })
	e.list(n, func(i int) { e.u32(m.osds.weights[i]) })
	e.list(n, func(i int) { e.b = m.osds.addrs[i].AppendTo(e.b) })
	e.sets(m.pgTemp)
	e.u32(uint32(len(m.primaryTemp)))
	for g, osd := range m.primaryTemp {
		e.pg(g)
		e.u32(uint32(osd))
	}
	e.list(len(m.osds.affinity), func(i int) { e.u32(m.osds.affinity[i]) })
	e.blob(tree)
	e.u32(0)
	e.sets(m.upmap)
	e.u32(uint32(len(m.upmapItems)))
	for g, pairs := range m.upmapItems {
		e.pg(g)
		e.list(len(pairs), func(i int) { e.u32(uint32(pairs[i][0]), uint32(pairs[i][1])) })
	}
	e.u32(1, 0, 0)
	e.zeros(16)
}

// encodeDaemons is the section that clients skip and tools read.
func encodeDaemons(e *encoder, n int) {
	addrs := func(int) { e.b = wire.AddrVec{}.AppendTo(e.b) }
	e.list(n, addrs)
	e.list(n, func(int) { e.u8(1); e.zeros(24) })
	e.u32(0)
	e.list(n, addrs)
	e.u32(0, 0)
	e.list(n, func(int) { e.zeros(16) })
	e.list(n, func(int) { e.section(4, 1, func() { e.zeros(8 + 4 + 4 + 8 + 4 + 8 + 4) }) })
	e.list(n, addrs)
	e.zeros(3*4 + 2)
	e.u32(0, 0, 0, 0)
}

func (e *encoder) pool(p *Pool) {
	e.section(29, 5, func() {
		e.u8(p.Kind, p.Size, p.rule, p.objectHash)
		e.u32(p.PGNum, p.pgpNum)
		e.zeros(4 + 4 + 4 + 8 + 4 + 4 + 4 + 8)
		e.u64(p.Flags)
		e.zeros(4 + 1 + 8 + 8 + 4)
		e.u64(1<<64 - 1)
		e.u8(0)
		e.u64(uint64(p.ReadTier), uint64(p.WriteTier))
		e.u32(0)
		e.section(1, 1, func() { e.u8(0) })
		e.zeros(4 + 4 + 4 + 8 + 8 + 4*4 + 4 + 4 + 4 + 8 + 4 + 4 + 1 + 1 + 4 + 4)
		e.section(2, 1, func() { e.u32(0) })
		e.zeros(4 + 4 + 8 + 6*4 + 1)
		e.section(1, 1, func() { e.pg(PG{}); e.zeros(3*4 + 2*12) })
	})
}

// Rules of tree. Release 16 takes none of another type than the pool's.
var replicatedRules, erasureRules = []uint32{0, 1, 4, 6, 7}, []uint32{2, 3, 5, 8}

// tree makes a crush map with racks, hosts and devices, and rules for all pools, whose shapes, numbers and
// settings are random; a plain one is as a new cluster makes it.
func tree(rnd *rand.Rand, devices, hosts, racks int, plain bool) []byte {
	type bucket struct {
		kind  uint16
		items []int32
	}
	buckets := make([]bucket, 1+racks+hosts)
	for i := range buckets {
		switch {
		case i == 0:
			buckets[i].kind = 3
		case i <= racks:
			buckets[i].kind = 2
			buckets[0].items = append(buckets[0].items, int32(-1-i))
		default:
			buckets[i].kind = 1
			rack := &buckets[1+(i-1-racks)%racks]
			rack.items = append(rack.items, int32(-1-i))
		}
	}
	for d := range devices {
		host := &buckets[1+racks+d*hosts/devices]
		host.items = append(host.items, int32(d))
	}
	weight := func() uint32 {
		if plain {
			return 0x10000
		}
		return []uint32{0, 0x8000, 0x10000, 0x10000, 0x25000, rnd.Uint32N(0x100000)}[rnd.IntN(6)]
	}
	var e encoder
	e.u32(0x00010000, uint32(len(buckets)))
	mark := len(e.b)
	e.u32(0, uint32(devices))
	var straw2 []int
	for i, b := range buckets {
		alg := uint8(5)
		if !plain && rnd.IntN(3) == 0 {
			alg = uint8(1 + rnd.IntN(4))
		}
		if alg == 5 {
			straw2 = append(straw2, i)
		}
		e.u32(uint32(alg), uint32(-1-i))
		e.u8(uint8(b.kind), 0, alg, 0)
		e.u32(0x10000)
		e.list(len(b.items), func(k int) { e.u32(uint32(b.items[k])) })
		switch alg {
		case 1:
			e.u32(0x10000)
		case 2, 4:
			sum := uint32(0)
			for range b.items {
				w := weight()
				sum += w
				e.u32(w, sum)
			}
		case 3:
			nodes := make([]uint32, 2)
			for len(nodes) < 2*len(b.items) {
				nodes = make([]uint32, 2*len(nodes))
			}
			for k := range b.items { // each leaf, and those above it
				w := 1 + weight()
				for node, half := 2*k+1, 1; node < len(nodes); half *= 2 {
					nodes[node] += w
					if node == len(nodes)/2 {
						break
					}
					if node&(2*half) == 0 {
						node += half
					} else {
						node -= half
					}
				}
			}
			e.u8(uint8(len(nodes)))
			e.u32(nodes...)
		case 5:
			for range b.items {
				e.u32(weight())
			}
		}
	}
	steps := [][][3]int32{
		{{1, -1, 0}, {6, 0, 1}, {4, 0, 0}},
		{{1, -1, 0}, {2, 0, 0}, {4, 0, 0}},
		{{8, 100, 0}, {9, 5, 0}, {1, -1, 0}, {7, 0, 1}, {4, 0, 0}},
		{{1, -1, 0}, {3, 0, 0}, {4, 0, 0}},
		{{1, -1, 0}, {2, 2, 2}, {6, 2, 1}, {4, 0, 0}},
		{{1, -1, 0}, {3, 3, 2}, {7, 2, 1}, {4, 0, 0}},
		{{10, 2, 0}, {11, 3, 0}, {12, 2, 0}, {13, 0, 0}, {9, 3, 0}, {8, 9, 0}, {1, -1, 0}, {6, 0, 1}, {4, 0, 0}},
		{{1, -2, 0}, {6, 1, 1}, {4, 0, 0}, {1, -1, 0}, {6, -1, 2}, {4, 0, 0}},
		{{1, -2, 0}, {7, 1, 1}, {4, 0, 0}, {1, -1, 0}, {7, 0, 1}, {4, 0, 0}},
	}
	for i, s := range steps {
		e.u32(1, uint32(len(s)))
		kind := uint8(PoolReplicated)
		if slices.Contains(erasureRules, uint32(i)) {
			kind = poolErasure
		}
		e.u8(uint8(i), kind, 1, 20)
		for _, s := range s {
			e.u32(uint32(s[0]), uint32(s[1]), uint32(s[2]))
		}
	}
	binary.LittleEndian.PutUint32(e.b[mark:], uint32(len(steps)))
	e.list(4, func(i int) { e.u32(uint32(i)); e.str([]string{"osd", "host", "rack", "root"}[i]) })
	e.list(len(buckets)+devices, func(i int) {
		if i < len(buckets) {
			e.u32(uint32(-1 - i))
			e.str(fmt.Sprintf("bucket%d", i))
		} else {
			e.u32(uint32(i - len(buckets)))
			e.str(fmt.Sprintf("osd.%d", i-len(buckets)))
		}
	})
	e.list(len(steps), func(i int) { e.u32(uint32(i)); e.str(fmt.Sprintf("rule%d", i)) })
	tunables := []uint32{0, 0, 50, 1, 1, 1}
	if !plain {
		tunables = [][]uint32{tunables, {2, 5, 19, 0, 0, 0}, {0, 0, 50, 1, 0, 0}, {0, 0, 50, 1, 1, 0}, {1, 3, 7, 0, 4, 1}, {3, 0, 19, 0, 1, 0}}[rnd.IntN(6)]
	}
	e.u32(tunables[:4]...)
	e.u8(uint8(tunables[4]), 1)
	e.u32(62)
	e.u8(uint8(tunables[5]))
	e.u32(0, 0, 0) // classes
	sets := []int64{}
	if !plain && len(straw2) > 0 {
		sets = [][]int64{{}, {-1}, {1, 3}, {-1, 2}}[rnd.IntN(4)]
	}
	e.list(len(sets), func(i int) {
		e.u64(uint64(sets[i]))
		e.list(len(straw2), func(k int) {
			items := buckets[straw2[k]].items
			e.u32(uint32(straw2[k]))
			e.list(rnd.IntN(4), func(int) { e.list(len(items), func(int) { e.u32(weight()) }) })
			ids := len(items) * rnd.IntN(2)
			e.list(ids, func(k int) { e.u32(uint32(items[k]) + 1000) })
		})
	})
	return e.b
}
