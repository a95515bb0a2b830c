package osdmap

import (
	"math/bits"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/crush"
)

// Hashes of names.
const (
	hashLinux    = 1
	hashRjenkins = 2
)

// Locate returns the placement group of an object, and the hash of its name. The pool is one
// of m. If the object has a locator key, that stands in the place of its name.
func (m *Map) Locate(pool int64, namespace, name string) (PG, uint32) {
	p := m.pools[pool]
	var hash uint32
	if namespace == "" {
		hash = hashName(p.objectHash, name)
	} else {
		var buf [256]byte
		text := append(append(buf[:0], namespace...), 0x1f)
		hash = hashName(p.objectHash, append(text, name...))
	}
	return PG{Pool: pool, Seed: stableMod(hash, p.PGNum)}, hash
}

// Group returns the placement group of objects whose names have this hash. The pool is one of m.
func (m *Map) Group(pool int64, hash uint32) PG {
	return PG{Pool: pool, Seed: stableMod(hash, m.pools[pool].PGNum)}
}

func hashName[T string | []byte](kind uint8, name T) uint32 {
	switch kind {
	case hashRjenkins:
		return crush.HashName(name)
	case hashLinux:
		var h uint32
		for i := range len(name) {
			c := uint32(name[i])
			h = (h + c<<4 + c>>4) * 11
		}
		return h
	}
	return 1<<32 - 1
}

// Splits says whether the pool's growth from one number of placement groups to a higher one gives objects of
// the group with this seed to new groups.
func Splits(seed, from, to uint32) bool {
	shift := bits.Len32(from) - 1
	for n := uint64(1); ; n++ {
		child := n<<shift | uint64(seed)
		switch {
		case child >= uint64(to):
			return false
		case child >= uint64(from) && stableMod(uint32(child), from) == seed:
			return true
		}
	}
}
