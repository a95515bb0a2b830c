package osdmap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/crush"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// cluster is a map of n OSDs in hosts of ten, as new clusters make it, with one pool of size 3.
func cluster(t testing.TB, n int, pgs uint32) (*Map, []byte) {
	t.Helper()
	blob := tree(rand.New(rand.NewPCG(1, 2)), n, max(n/10, 3), max(n/100, 1), true)
	m := &Map{Epoch: 1, names: map[int64]string{1: "data"}, pools: map[int64]*Pool{1: {
		Kind: PoolReplicated, Peering: Peering{Size: 3}, PGNum: pgs, pgpNum: pgs, objectHash: hashRjenkins, Flags: poolHashed, ReadTier: -1, WriteTier: -1,
	}}}
	m.osds.resize(n)
	for i := range n {
		m.osds.states[i], m.osds.weights[i] = stateExists|stateUp, wholeWeight
	}
	whole := encodeMap(m, blob)
	m, err := Decode(whole)
	check(t, err)
	return m, whole
}

// with applies a change to m.
func with(t *testing.T, m *Map, n Incremental) *Map {
	t.Helper()
	n.Epoch, n.FSID = m.Epoch+1, m.FSID
	n.flags, n.maxOSD = -1, max(n.maxOSD, -1)
	if n.maxOSD == 0 {
		n.maxOSD = -1
	}
	next, err := n.Apply(m)
	check(t, err)
	return next
}

// A new map computes again what may have changed, and nothing else: the groups of an OSD
// that goes out, those that missed one which comes in, and all of a pool that is placed otherwise.
func TestANewMapKeepsThePlacementsThatItDoesNotChange(t *testing.T) {
	t.Parallel()
	const groups = 256
	m, _ := cluster(t, 100, groups)
	var s, fresh Scratch
	kept := func(m *Map) (n int) {
		for seed := range m.pools[1].pgpNum {
			if _, ok := m.tables[1].get(seed, s.up[:]); ok {
				n++
			}
		}
		return n
	}
	having := func(osd int32) (n int) {
		for seed := range uint32(groups) {
			if slices.Contains(m.Place(&s, PG{1, seed}).Up, osd) {
				n++
			}
		}
		return n
	}
	fill := func(m *Map) {
		other := *m
		other.tables = nil
		for seed := range m.pools[1].PGNum {
			if got, want := line(m, &s, PG{1, seed}), line(&other, &fresh, PG{1, seed}); got != want {
				t.Errorf("kept: %s, computed: %s", got, want)
			}
		}
	}
	fill(m)
	for _, c := range []struct {
		what   string
		change Incremental
		least  int
		most   int
	}{
		{"one down", Incremental{states: map[int32]uint32{7: stateUp}}, groups, groups},
		{"one up", Incremental{ups: map[int32]wire.AddrVec{7: nil}}, groups, groups},
		{"a temporary set", Incremental{exceptions: exceptions{pgTemp: map[PG][]int32{{1, 3}: {1, 2}}}}, groups, groups},
		{"one out", Incremental{weights: map[int32]uint32{7: 0}}, groups - having(7), groups - having(7)},
		{"one in", Incremental{weights: map[int32]uint32{7: wholeWeight}}, groups / 2, groups - 1},
		{"more OSDs", Incremental{maxOSD: 200}, groups, groups},
		{"more groups in the old places", Incremental{pools: map[int64]*Pool{1: pool(m, func(p *Pool) { p.PGNum *= 2 })}}, groups, groups},
		{"another size", Incremental{pools: map[int64]*Pool{1: pool(m, func(p *Pool) { p.Size = 2 })}}, 0, 0},
		{"other places", Incremental{pools: map[int64]*Pool{1: pool(m, func(p *Pool) { p.pgpNum /= 2 })}}, 0, 0},
		{"a rule that chooses more than it needs", Incremental{pools: map[int64]*Pool{1: pool(m, func(p *Pool) { p.Kind, p.rule = poolErasure, 8 })}}, 0, 0},
		{"some less", Incremental{weights: map[int32]uint32{10: 0, 30: 0, 50: 0, 70: 0}}, 0, 0},
		{"no pool", Incremental{oldPools: []int64{1}, pools: map[int64]*Pool{2: m.pools[1]}}, 0, 0},
	} {
		m = with(t, m, c.change)
		if m.pools[1] == nil {
			if got := m.Place(&s, PG{1, 1}); got.Primary != Nobody || len(got.Acting) != 0 {
				t.Errorf("%s: %v", c.what, got)
			}
			break
		}
		if n := kept(m); n < c.least || n > c.most {
			t.Errorf("%s: %d placements are kept, want %d to %d", c.what, n, c.least, c.most)
		}
		fill(m)
	}
}

func pool(m *Map, change func(*Pool)) *Pool {
	p := *m.pools[1]
	change(&p)
	return &p
}

// An OSD that is destroyed leaves nothing to the one that gets its number: no address, and no affinity. One that comes up is not to
// stop any more. Numbers are added and cut off.
func TestAnOSDThatIsDestroyedLeavesNothing(t *testing.T) {
	m, _ := cluster(t, 100, 64)
	addrs := wire.AddrVec{{Type: wire.AddrMsgr2}}
	m = with(t, m, Incremental{affinities: map[int32]uint32{7: 5}, states: map[int32]uint32{7: stateStop, 100: stateExists}, maxOSD: 101})
	m = with(t, m, Incremental{ups: map[int32]wire.AddrVec{7: addrs}})
	if o := &m.osds; o.affinity[7] != 5 || o.states[7] != stateExists|stateUp || m.Addrs(7) == nil {
		t.Fatalf("%#x, affinity %#x, %v", o.states[7], o.affinity[7], m.Addrs(7))
	}
	m = with(t, m, Incremental{states: map[int32]uint32{7: stateExists}})
	m = with(t, m, Incremental{states: map[int32]uint32{7: stateExists | stateUp}, maxOSD: 50})
	if o := &m.osds; len(o.states) != 50 || o.affinity[7] != wholeWeight || o.affinity[8] != wholeWeight || o.states[7] != stateExists|stateUp || m.Addrs(7) != nil {
		t.Errorf("%#x, affinity %#x, %v", o.states[7], o.affinity[7], m.Addrs(7))
	}
}

func TestAPlacementAllocatesNothing(t *testing.T) {
	for _, name := range []string{"reef-tweak", "reef-uniform", "tentacle-msr", "tentacle-ecopt", "pacific-args"} {
		m := decoded(t, name)
		s := new(Scratch)
		var groups []PG
		for id, p := range m.pools {
			for seed := range p.PGNum {
				groups = append(groups, PG{id, seed})
			}
		}
		i := 0
		one := func() {
			g := groups[i%len(groups)]
			m.Place(s, g)
			m.Locate(g.Pool, "namespace", "an object of some length")
			i++
		}
		for range groups {
			one()
		}
		if n := testing.AllocsPerRun(100, one); n != 0 {
			t.Errorf("%s, kept: %v allocations", name, n)
		}
		m.tables = nil
		if n := testing.AllocsPerRun(100, one); n != 0 {
			t.Errorf("%s, computed: %v allocations", name, n)
		}
	}
}

// The distance of an OSD from a location is the type of the lowest bucket that they have in common.
func TestOSDsAreNearWhatTheyAreBelow(t *testing.T) {
	t.Parallel()
	m, _ := cluster(t, 12, 8)
	m.crush, _ = crush.Decode(tree(rand.New(rand.NewPCG(1, 2)), 12, 4, 2, true)) // hosts 3 and 5 are in rack 1
	for location, want := range map[string]map[int32]int32{
		"host=bucket3 rack=bucket1 root=bucket0": {0: 1, 1: 1, 2: 1, 3: 3, 4: 3, 5: 3, 6: 2, 7: 2, 8: 2, 9: 3, 10: 3, 11: 3},
		"host=bucket3 host=bucket6":              {0: 1, 1: 1, 2: 1, 9: 1, 10: 1, 11: 1},
		"rack=bucket3 host=bucket7 host":         {},
	} {
		if got := m.Distances(strings.Fields(location)); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", location, got, want)
		}
	}
	// The buckets of a class have the devices of the class once more.
	shadow := decoded(t, "tentacle-real-e120")
	if got := shadow.Distances([]string{"root=default~ssd"}); len(got) > 0 || len(shadow.Distances([]string{"root=default"})) == 0 {
		t.Errorf("%v below a bucket of a class", got)
	}
}

// Any number of goroutines may place: with the race detector, each sees whole rows.
func TestGoroutinesShareWhatAMapKeeps(t *testing.T) {
	t.Parallel()
	m, _ := cluster(t, 30, 64)
	var s Scratch
	var want [64]string
	for seed := range want {
		other := *m
		other.tables = nil
		want[seed] = line(&other, &s, PG{1, uint32(seed)})
	}
	done := make(chan string)
	for range 4 {
		go func() {
			var s Scratch
			bad := ""
			for seed := range want {
				if got := line(m, &s, PG{1, uint32(seed)}); got != want[seed] {
					bad = got
				}
			}
			done <- bad
		}()
	}
	for range 4 {
		if bad := <-done; bad != "" {
			t.Error(bad)
		}
	}
}

// The shard of an operation is the place of the primary. Where the cluster has some shards that are never primary,
// temporary sets have the others first.
func TestTheShardIsThatOfThePrimary(t *testing.T) {
	t.Parallel()
	m := decoded(t, "tentacle-ecopt")
	var s Scratch
	for g, want := range map[PG]int8{
		{1, 0}: -1, // replicated
		{4, 0}: 0, {4, 1}: 0, {4, 5}: 2, {4, 6}: 2, {4, 7}: 0,
	} {
		if got := m.Place(&s, g); got.Shard != want {
			t.Errorf("%v: %+v, want shard %d", g, got, want)
		}
	}
	for acting, want := range map[[3]int32]int8{{5, 5, 5}: 0, {9, 5, 5}: 2, {9, 8, 7}: -1} { // 1 is never primary
		if got := m.pools[4].shard(acting[:], 5); got != want {
			t.Errorf("%v: shard %d, want %d", acting, got, want)
		}
	}
}

// reseal corrects the crc of a map after a change. behind is 4 for an incremental one.
func reseal(p []byte) []byte {
	if len(p) < 6 {
		return p
	}
	r := wire.NewReader(p[6:])
	r.Skip(2)
	r.Blob()
	r.Skip(2)
	r.Blob()
	if r.Len() < 4 {
		return p
	}
	at := len(p) - r.Len()
	sum := crc32.Update(crc32.Checksum(p[:at], castagnoli), castagnoli, p[at+4:])
	binary.LittleEndian.PutUint32(p[at:], ^sum)
	return p
}

func TestMalformedMapsAreRefused(t *testing.T) {
	t.Parallel()
	m, whole := cluster(t, 5, 8)
	if _, err := Decode(whole); err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[100] ^= 1
	for name, p := range map[string][]byte{
		"empty":           nil,
		"cut":             whole[:len(whole)-1],
		"crc":             changed,
		"more behind":     append(bytes.Clone(whole), 0),
		"a newer one":     append([]byte{9, 9}, whole[2:]...),
		"an older one":    append([]byte{6, 6}, whole[2:]...),
		"an older client": reseal(append(append(bytes.Clone(whole[:6]), 8, 1), whole[8:]...)),
	} {
		if _, err := Decode(p); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What a map claims to have is not there, or is more than a map may have.
	blob := tree(rand.New(rand.NewPCG(1, 2)), 5, 3, 1, true)
	for name, change := range map[string]func(m *Map){
		"a set of 256":       func(m *Map) { m.pgTemp = map[PG][]int32{{1, 1}: make([]int32, maxSet+1)} },
		"256 exchanges":      func(m *Map) { m.upmapItems = map[PG][][2]int32{{1, 1}: make([][2]int32, maxSet+1)} },
		"no groups":          func(m *Map) { m.pools = map[int64]*Pool{1: pool(m, func(p *Pool) { p.PGNum = 0 })} },
		"no places":          func(m *Map) { m.pools = map[int64]*Pool{1: pool(m, func(p *Pool) { p.pgpNum = 0 })} },
		"a kind of pool":     func(m *Map) { m.pools = map[int64]*Pool{1: pool(m, func(p *Pool) { p.Kind = 2 })} },
		"a long name":        func(m *Map) { m.names = map[int64]string{1: string(make([]byte, maxName+1))} },
		"too few affinities": func(m *Map) { m.osds.affinity = make([]uint32, 4) },
	} {
		bad := *m
		change(&bad)
		if _, err := Decode(encodeMap(&bad, blob)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode(encodeMap(m, blob[:50])); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("half a crush map: %v", err)
	}
	for _, size := range []uint8{3, 0} {
		large := *m
		large.pools = map[int64]*Pool{1: pool(m, func(p *Pool) { p.PGNum, p.pgpNum, p.Size = 1<<32-1, 1<<32-1, size })}
		got, err := Decode(encodeMap(&large, blob))
		check(t, err)
		var s Scratch
		if got.tables[1] != nil || len(got.Place(&s, PG{1, 1<<32 - 2}).Up) != int(size) {
			t.Errorf("a pool of four billion groups of %d is kept, or is elsewhere", size)
		}
	}
}

func TestIncrementalMapsThatFitNoMapAreRefused(t *testing.T) {
	t.Parallel()
	m, _ := cluster(t, 5, 8)
	many := make(map[PG]int32, maxExceptions+1)
	for i := range uint32(maxExceptions + 1) {
		many[PG{1, i}] = 1
	}
	for name, n := range map[string]Incremental{
		"weight of an unknown osd":   {weights: map[int32]uint32{5: 1}},
		"state of an unknown osd":    {states: map[int32]uint32{-1: 1}},
		"affinity of an unknown osd": {affinities: map[int32]uint32{1 << 30: 1}},
		"an unknown osd is up":       {ups: map[int32]wire.AddrVec{99: nil}},
		"a million exceptions":       {exceptions: exceptions{primaryTemp: many}},
	} {
		n.Epoch, n.flags, n.maxOSD = 2, -1, -1
		if _, err := n.Apply(m); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, n := range map[string]Incremental{"same epoch": {Epoch: 1}, "gap": {Epoch: 3}, "other cluster": {Epoch: 2, FSID: [16]byte{9}}} {
		if _, err := n.Apply(m); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// It changes nothing of the map that it is applied to.
	before := fmt.Sprintf("%+v", plain(m))
	with(t, m, Incremental{
		weights: map[int32]uint32{1: 1}, states: map[int32]uint32{2: 1}, ups: map[int32]wire.AddrVec{3: nil}, affinities: map[int32]uint32{4: 1},
		oldPools: []int64{1}, names: map[int64]string{2: "b"}, exceptions: exceptions{upmap: map[PG][]int32{{1, 1}: {1}}}, maxOSD: 7,
	})
	if after := fmt.Sprintf("%+v", plain(m)); after != before {
		t.Errorf("changed from %s to %s", before, after)
	}
	// An OSD that the cluster took out by itself is not so any more once it has a weight. One with a weight exists.
	auto := with(t, m, Incremental{states: map[int32]uint32{1: stateAutoOut | stateNew, 2: stateExists}, weights: map[int32]uint32{1: 0}})
	in := with(t, auto, Incremental{weights: map[int32]uint32{1: 1, 2: 1}}).osds.states
	if !auto.has(1, stateAutoOut) || auto.has(2, stateExists) || in[1] != stateExists|stateUp || in[2] != stateExists {
		t.Errorf("states %v", auto.osds.states)
	}
}

// bounded decodes input once its crc is right, and fails unless that allocates in proportion; false: it is malformed.
func bounded[T any](t *testing.T, p []byte, decode func(p []byte) (T, error)) (v T, ok bool) {
	t.Helper()
	p = reseal(bytes.Clone(p))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v, err := decode(p)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(128*len(p)+(2<<20)) {
		t.Fatalf("%d bytes of input took %d", len(p), used)
	}
	if err != nil && !errors.Is(err, wire.ErrMalformed) {
		t.Fatal(err)
	}
	return v, err == nil
}

func FuzzDecode(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.osdmap.gz")
	for _, path := range paths {
		if p := captured.Unzip(f, path); len(p) < 20000 {
			f.Add(p, uint32(1))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, seed uint32) {
		if m, ok := bounded(t, p, Decode); ok {
			placeAll(t, m, seed)
		}
	})
}

// placeAll places a group of each pool, and holds the result against the map.
func placeAll(t *testing.T, m *Map, seed uint32) {
	var s Scratch
	n := 0
	for id, p := range m.pools {
		if n++; n > 3 {
			break
		}
		g := PG{id, stableMod(seed, p.PGNum)}
		first := m.Place(&s, g)
		for _, osd := range slices.Concat(first.Up, first.Acting) {
			if osd != crush.None && m.Addrs(osd) == nil && !m.has(osd, stateExists|stateUp) {
				t.Fatalf("%v: %+v: osd.%d is not up", g, first, osd)
			}
		}
		text := fmt.Sprint(first)
		if again := fmt.Sprint(m.Place(&s, g)); again != text {
			t.Fatalf("%v: %s, then %s", g, text, again)
		}
		m.Addrs(first.Primary)
	}
}

func FuzzIncremental(f *testing.F) {
	chain := captured.Chain(f, "testdata/chain-tentacle.jsonl.gz")
	m, err := Decode(chain[100].Full)
	check(f, err)
	for n := 1; n < len(chain); n += 20 {
		f.Add(chain[n].Inc, uint32(n))
	}
	f.Fuzz(func(t *testing.T, p []byte, seed uint32) {
		n, ok := bounded(t, p, DecodeIncremental)
		if !ok {
			return
		}
		at := *m
		at.FSID, at.Epoch = n.FSID, n.Epoch-1
		before := plain(&at)
		next, err := n.Apply(&at)
		if err == nil {
			placeAll(t, next, seed)
		} else if !errors.Is(err, wire.ErrMalformed) {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plain(&at), before) {
			t.Fatal("the map before has changed")
		}
	})
}

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
