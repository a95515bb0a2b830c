package crush

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// magic begins a map.
const magic = 0x00010000

// Decode reads a map, and keeps none of p. Its memory is in proportion to p. Parts behind those that it
// knows are ignored. Errors wrap wire.ErrMalformed.
func Decode(p []byte) (*Map, error) {
	r := wire.NewReader(p)
	if v := r.U32(); v != magic && r.Err() == nil {
		return nil, fmt.Errorf("%w: crush map: magic number %#x", wire.ErrMalformed, v)
	}
	m := &Map{tunables: legacy, budget: budget}
	buckets, rules := r.Count(4), r.Count(4)
	m.maxDevices = r.S32()
	m.buckets = make([]*bucket, buckets)
	for i := range m.buckets {
		if alg := r.U32(); alg != 0 {
			m.buckets[i] = decodeBucket(r, int32(-1-i), alg)
		}
	}
	m.rules = make([]*rule, rules)
	for i := range m.rules {
		if r.U32() != 0 {
			m.rules[i] = decodeRule(r)
		}
	}
	m.types, m.names = readNames(r), readNames(r)
	readNames(r) // of rules
	decodeTunables(r, &m.tunables, m)
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("crush map: %w", err)
	}
	return m, nil
}

func decodeBucket(r *wire.Reader, id int32, alg uint32) *bucket {
	b := &bucket{id: r.S32(), kind: int32(r.U16()), alg: r.U8()}
	hash := r.U8()
	r.U32() // weight
	b.items = wire.ListOf(r, 4, (*wire.Reader).S32)
	if r.Err() == nil && (b.id != id || uint32(b.alg) != alg || hash != 0) {
		r.Fail(fmt.Errorf("%w: bucket %d has id %d, algorithm %d or %d, hash %d", wire.ErrMalformed,
			id, b.id, alg, b.alg, hash))
	}
	switch b.alg {
	case algUniform:
		r.U32() // weight of each item
	case algList:
		b.weights, b.sums = decodePairs(r, len(b.items))
	case algTree:
		b.nodes = make([]uint32, r.U8())
		for i := range b.nodes {
			b.nodes[i] = r.U32()
		}
		if n := len(b.nodes); r.Err() == nil && (n < 2 || n&(n-1) != 0) {
			r.Fail(fmt.Errorf("%w: bucket %d is a tree of %d nodes", wire.ErrMalformed, id, n))
		}
	case algStraw:
		_, b.straws = decodePairs(r, len(b.items))
	case algStraw2:
		b.straw2 = make([]straw, len(b.items))
		for i, item := range b.items {
			b.straw2[i] = straw{uint32(item), r.U32()}
		}
	default:
		r.Fail(fmt.Errorf("%w: bucket %d has algorithm %d", wire.ErrMalformed, id, b.alg))
	}
	return b
}

func decodePairs(r *wire.Reader, n int) (first, second []uint32) {
	first, second = make([]uint32, n), make([]uint32, n)
	for i := range n {
		first[i], second[i] = r.U32(), r.U32()
	}
	return first, second
}

func decodeRule(r *wire.Reader) *rule {
	n := r.Count(12)
	r.U8() // its number, of old
	u := &rule{kind: r.U8(), steps: make([]step, n)}
	r.Skip(2) // sizes of pools, of old
	for i := range u.steps {
		u.steps[i] = step{r.U32(), r.S32(), r.S32()}
	}
	return u
}

// readNames reads a map of names. Its keys once had 64 bits: then the length seems to be 0.
func readNames(r *wire.Reader) map[int32]string {
	names := map[int32]string{}
	for range r.Count(8) {
		key, n := r.S32(), r.U32()
		if n == 0 {
			n = r.U32()
		}
		names[key] = string(r.Bytes(int(n)))
	}
	return names
}

// decodeTunables reads the rest of a map, of which releases have added one part after the other.
func decodeTunables(r *wire.Reader, t *tunables, m *Map) {
	parts := []func(){
		func() { t.localTries, t.localFallback, t.totalTries = r.U32(), r.U32(), r.U32() },
		func() { t.descendOnce = r.U32() != 0 },
		func() { t.varyR = uint32(r.U8()) },
		func() { r.U8() },  // version of the straws
		func() { r.U32() }, // algorithms that are allowed
		func() { t.stable = r.U8() != 0 },
		func() { skipClasses(r) },
		func() { decodeSets(r, m) },
		func() { t.msrDescents, t.msrCollisions = r.U32(), r.U32() },
	}
	for _, part := range parts {
		if r.Len() == 0 {
			return
		}
		part()
	}
}

// skipClasses passes over device classes: a rule names the bucket that has only the devices of
// its class.
func skipClasses(r *wire.Reader) {
	r.Skip(8 * r.Count(8)) // of devices
	readNames(r)
	for range r.Count(8) { // buckets for each bucket and class
		r.U32()
		r.Skip(8 * r.Count(8))
	}
}

// decodeSets reads choose_args. Entries of buckets that do not exist, or have another
// algorithm, are dropped.
func decodeSets(r *wire.Reader, m *Map) {
	sets := r.Count(12)
	for set := range sets {
		key := r.S64()
		for range r.Count(12) {
			slot, weights, ids := r.U32(), wire.ListOf(r, 4, (*wire.Reader).U32s), r.U32s()
			if r.Err() != nil {
				return
			}
			if int64(slot) >= int64(len(m.buckets)) || m.buckets[slot] == nil || m.buckets[slot].alg != algStraw2 {
				continue
			}
			if !m.buckets[slot].addSet(int32(set), weights, ids) {
				r.Fail(fmt.Errorf("%w: choose_args %d of bucket %d have other sizes", wire.ErrMalformed,
					key, -1-int64(slot)))
				return
			}
		}
		if m.sets == nil {
			m.sets = make(map[int64]int32)
		}
		m.sets[key] = int32(set)
	}
}

// addSet adds an entry of choose_args to b. It is false if a list does not have one element for
// each item.
func (b *bucket) addSet(set int32, weights [][]uint32, ids []uint32) bool {
	if len(ids) != 0 && len(ids) != len(b.items) {
		return false
	}
	if len(b.items) == 0 || len(weights) == 0 && len(ids) == 0 {
		return true
	}
	a := choosing{set: set, positions: make([][]straw, max(len(weights), 1))}
	for p := range a.positions {
		straws := slices.Clone(b.straw2)
		if p < len(weights) {
			if len(weights[p]) != len(b.items) {
				return false
			}
			for i, weight := range weights[p] {
				straws[i].weight = weight
			}
		}
		for i, id := range ids {
			straws[i].id = id
		}
		a.positions[p] = straws
	}
	b.args = append(b.args, a)
	return true
}
