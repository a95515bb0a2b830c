package osdmap

import (
	"slices"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/crush"
)

// Nobody stands in the place of an OSD where there is none.
const Nobody = -1

// Placement says where a placement group is. Its slices lie in the Scratch until that is used again.
type Placement struct {
	// Up are the OSDs that are to have it, Acting those that serve it now. For erasure codes the
	// position is the shard, and crush.None stands for one that is missing.
	Up, Acting []int32
	// UpPrimary and Primary are the first among them; Nobody: there is none.
	UpPrimary, Primary int32
	// Shard is that of the primary; -1: the pool is replicated, or there is none.
	Shard int8
}

// Scratch is the memory that one call of Place at a time needs. The zero Scratch is ready.
type Scratch struct {
	work        crush.Work
	up, acting  [maxSet]int32
	permutation [maxSet]int32
}

// Place finds a placement group. It allocates nothing but, once for each pool, memory for the
// results of CRUSH. A group of a pool that does not exist is nowhere.
func (m *Map) Place(s *Scratch, g PG) Placement {
	p := m.pools[g.Pool]
	if p == nil {
		return Placement{UpPrimary: Nobody, Primary: Nobody, Shard: -1}
	}
	seed := p.seed(g)
	up := m.upmapped(g, m.raw(s, p, g, seed), s)
	up = m.keep(up, p.Replicated(), stateUp)
	t := Placement{Up: up, UpPrimary: first(up), Shard: -1}
	t.UpPrimary = m.preferred(p, up, t.UpPrimary, seed)
	t.Acting, t.Primary = up, t.UpPrimary
	temp := m.keep(s.acting[:copy(s.acting[:], m.pgTemp[g])], p.Replicated(), stateUp)
	if len(temp) > 0 {
		t.Primary = first(temp)
		t.Acting = p.byShard(temp, s)
	}
	if primary, ok := m.primaryTemp[g]; ok {
		t.Primary = primary
	}
	if !p.Replicated() && t.Primary != Nobody {
		t.Shard = p.shard(t.Acting, t.Primary)
	}
	return t
}

// seed is the number that CRUSH maps, of a group.
func (p *Pool) seed(g PG) uint32 {
	s := stableMod(g.Seed, p.pgpNum)
	if p.Flags&poolHashed != 0 {
		return crush.Hash2(s, uint32(g.Pool))
	}
	return s + uint32(g.Pool)
}

// raw are the OSDs by CRUSH, as far as they exist.
func (m *Map) raw(s *Scratch, p *Pool, g PG, seed uint32) []int32 {
	row := stableMod(g.Seed, p.pgpNum)
	t := m.tables[g.Pool]
	raw, ok := t.get(row, s.up[:])
	if !ok {
		n := m.crush.Do(&s.work, int(p.rule), seed, g.Pool, m.osds.weights, s.up[:p.Size])
		raw = s.up[:n]
		t.put(row, raw, s.work.LeftOut(), s.work.Cut())
	}
	return m.keep(raw, p.Replicated(), 0)
}

// keep drops the OSDs that do not exist, or lack these bits of a state: it shifts the others, or leaves
// a hole.
func (m *Map) keep(set []int32, shifts bool, bits uint32) []int32 {
	n := 0
	for _, osd := range set {
		if !m.has(osd, bits|stateExists) {
			if shifts {
				continue
			}
			osd = crush.None
		}
		set[n] = osd
		n++
	}
	return set[:n]
}

// first is the first OSD of a set.
func first(set []int32) int32 {
	for _, osd := range set {
		if osd != crush.None {
			return osd
		}
	}
	return Nobody
}

// out says that an OSD, which may not exist, has weight 0.
func (m *Map) out(osd int32) bool {
	return osd >= 0 && int(osd) < len(m.osds.weights) && m.osds.weights[osd] == 0
}

// upmapped applies the exceptions from CRUSH that the cluster has been given to balance it.
func (m *Map) upmapped(g PG, raw []int32, s *Scratch) []int32 {
	if vector, ok := m.upmap[g]; ok {
		if slices.ContainsFunc(vector, m.out) {
			return raw
		}
		raw = s.up[:copy(s.up[:], vector)]
	}
	for _, pair := range m.upmapItems[g] {
		exchange(raw, pair, m.out(pair[1]))
	}
	if primary, ok := m.upmapPrimary[g]; ok && len(raw) > 0 && m.has(primary, 0) && !m.out(primary) {
		if at := slices.Index(raw[1:], primary); at >= 0 {
			raw[0], raw[1+at] = raw[1+at], raw[0]
		}
	}
	return raw
}

// exchange puts pair[1] in the place of pair[0], unless it is in the set already, or is out.
func exchange(set []int32, pair [2]int32, out bool) {
	if at := slices.Index(set, pair[0]); at >= 0 && !out && !slices.Contains(set, pair[1]) {
		set[at] = pair[1]
	}
}

// preferred is the primary by affinity: an OSD with less of it is passed over for some of its
// groups. In a replicated pool it goes to the front.
func (m *Map) preferred(p *Pool, up []int32, primary int32, seed uint32) int32 {
	if m.osds.affinity == nil {
		return primary
	}
	at := -1
	for i, osd := range up {
		if osd == crush.None {
			continue
		}
		if a := m.osds.affinity[osd]; a < wholeWeight && crush.Hash2(seed, uint32(osd))>>16 >= a {
			if at < 0 {
				at = i // the choice if all are passed over
			}
			continue
		}
		at = i
		break
	}
	if at < 0 {
		return primary
	}
	primary = up[at]
	if p.Replicated() {
		copy(up[1:at+1], up[:at])
		up[0] = primary
	}
	return primary
}

// Distances says how far OSDs are from a location of the CRUSH hierarchy, such as "host=a", "root=default".
func (m *Map) Distances(location []string) map[int32]int32 { return m.crush.Distances(location) }

// byShard brings a temporary set, which has the shards that may be primary first, into the order of
// the shards.
func (p *Pool) byShard(temp []int32, s *Scratch) []int32 {
	never := 0
	for i := range temp {
		if p.neverPrimary(i) {
			never++
		}
	}
	if never == 0 {
		return temp
	}
	may, not := 0, len(temp)-never
	for i := range temp {
		next := &may
		if p.neverPrimary(i) {
			next = &not
		}
		s.permutation[i] = temp[*next]
		*next++
	}
	return s.permutation[:len(temp)]
}

// shard is that of an OSD. If it has several, those that may be primary come first.
func (p *Pool) shard(acting []int32, osd int32) int8 {
	found := -1
	for i, other := range acting {
		if other != osd {
			continue
		}
		if !p.neverPrimary(i) {
			return int8(i)
		}
		if found < 0 {
			found = i
		}
	}
	return int8(found)
}
