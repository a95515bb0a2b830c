package osdmap

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

func TestASplitConcernsTheGroupsThatGiveObjectsAway(t *testing.T) {
	for from := uint32(1); from < 70; from++ {
		for to := from + 1; to < 140; to++ {
			gives := map[uint32]bool{}
			for child := from; child < to; child++ {
				gives[stableMod(child, from)] = true
			}
			for seed := range from {
				if Splits(seed, from, to) != gives[seed] {
					t.Fatalf("from %d to %d groups: Splits(%d) = %v", from, to, seed, !gives[seed])
				}
			}
		}
	}
}

// The settings of pools that clients obey are those that osdmaptool reads in maps of real clusters: the least number of OSDs, flags, and
// groups behind a merge.
func TestThePoolsOfRealMapsAreReadAsTheToolReadsThem(t *testing.T) {
	for name, want := range map[string]string{
		"reef-real-e262":     "1: 1 0x1 15, 2: 1 0x4001 17, 3: 2 0x1 8, 5: 1 0x1 14, 7: 1 0x1 5, 8: 1 0x1 5, 11: 1 0x1 5, 15: 1 0x1 5, 17: 1 0x1 5, ",
		"tentacle-real-e266": "1: 1 0x1 15, 2: 1 0x4001 17, 3: 2 0x1 8, 5: 1 0x1 14, 7: 1 0x1 5, 8: 1 0x1 5, 11: 1 0x1 5, 15: 1 0x8001 5, 17: 1 0x8001 5, ",
	} {
		m, got := decoded(t, name), ""
		for _, id := range slices.Sorted(maps.Keys(m.pools)) {
			p := m.Pool(id)
			got += fmt.Sprintf("%d: %d %#x %d, ", id, p.MinSize, p.Flags, p.Pending)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
