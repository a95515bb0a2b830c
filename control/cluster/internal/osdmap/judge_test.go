package osdmap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/crush"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Random maps, with buckets, tunables, rules, choose_args, pools, weights, states and exceptions of
// all kinds, have the placements that the cluster's own tools print: 200 maps, 10 000 with
// RINGMSGR_LONG. RINGMSGR_SAMPLE=SEED repeats a run.
func TestToolsOfTheClusterAgreeOnRandomMaps(t *testing.T) {
	if os.Getenv("RINGMSGR_INTEROP") == "" {
		t.Skip("needs osdmaptool and crushtool: RINGMSGR_INTEROP=1 runs it")
	}
	maps, seed := 200, uint64(time.Now().Unix())
	if os.Getenv("RINGMSGR_LONG") != "" {
		maps = 10000
	}
	if s := os.Getenv("RINGMSGR_SAMPLE"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("RINGMSGR_SAMPLE: %v", err)
		}
	}
	t.Logf("RINGMSGR_SAMPLE=%d", seed)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			for i := worker; i < maps && !t.Failed(); i += 2 {
				number := seed + uint64(i)
				if err := agree(t, filepath.Join(dir, strconv.Itoa(worker)), rand.New(rand.NewPCG(number, 0))); err != nil {
					t.Errorf("RINGMSGR_SAMPLE=%d, the first map: %v", number, err)
				}
			}
		})
	}
	wg.Wait()
}

// agree makes a map, has both tools print it, and compares.
func agree(t *testing.T, path string, rnd *rand.Rand) error {
	blob := tree(rnd, 8+rnd.IntN(40), 3+rnd.IntN(8), 1+rnd.IntN(3), false)
	made := randomMap(rnd)
	whole := encodeMap(made, blob)
	m, err := Decode(whole)
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(path+".osdmap", whole, 0o600), os.WriteFile(path+".crush", blob, 0o600))
	if err != nil {
		return err
	}
	dump, err := exec.CommandContext(t.Context(), "osdmaptool", path+".osdmap", "--test-map-pgs-dump-all").CombinedOutput()
	if err != nil {
		return fmt.Errorf("osdmaptool: %w: %s", err, dump)
	}
	if n := judge(t, m, dump); n == 0 || t.Failed() {
		return fmt.Errorf("%d groups, or they differ", n)
	}
	size := 1 + rnd.IntN(6)
	out, err := exec.CommandContext(t.Context(), "crushtool", "-i", path+".crush", "--test", "--show-mappings",
		"--min-x", "0", "--max-x", "31", "--num-rep", strconv.Itoa(size), "--weight", "1", "0.5", "--weight", "3", "0").CombinedOutput()
	if err != nil {
		return fmt.Errorf("crushtool: %w: %s", err, out)
	}
	return mappings(blob, size, string(out))
}

var mappingLine = regexp.MustCompile(`CRUSH rule (\d+) x (\d+) (\[.*\])`)

// mappings compares the output of crushtool.
func mappings(blob []byte, size int, out string) error {
	m, err := crush.Decode(blob)
	if err != nil {
		return err
	}
	var w crush.Work
	weights := slices.Repeat([]uint32{wholeWeight}, 64)
	weights[1], weights[3] = wholeWeight/2, 0
	lines := mappingLine.FindAllStringSubmatch(out, -1)
	for _, l := range lines {
		rule, _ := strconv.Atoi(l[1])
		x, _ := strconv.Atoi(l[2])
		osds := make([]int32, size)
		osds = osds[:m.Do(&w, rule, uint32(x), -1, weights, osds)]
		if got := list(osds); got != l[3] {
			return fmt.Errorf("crushtool: %s\ngot %s", l[0], got)
		}
	}
	if len(lines) != 32*(len(replicatedRules)+len(erasureRules)) {
		return fmt.Errorf("crushtool: %d mappings: %s", len(lines), strings.TrimSpace(out))
	}
	return nil
}

// randomMap has pools of both kinds, and OSDs and exceptions in all states.
func randomMap(rnd *rand.Rand) *Map {
	n := 8 + rnd.IntN(42) // not as many as devices
	m := &Map{
		FSID: [16]byte{1, 2, 3}, Epoch: 5, pools: map[int64]*Pool{}, names: map[int64]string{},
	}
	m.pgTemp, m.primaryTemp = map[PG][]int32{}, map[PG]int32{}
	m.upmap, m.upmapItems = map[PG][]int32{}, map[PG][][2]int32{}
	pick := func(of ...uint32) uint32 { return of[rnd.IntN(len(of))] }
	m.osds.addrs = make([]wire.AddrVec, n)
	for range n {
		m.osds.states = append(m.osds.states, pick(3, 3, 3, 3, 1, 0, 2))
		m.osds.weights = append(m.osds.weights, pick(wholeWeight, wholeWeight, wholeWeight, 0, rnd.Uint32N(wholeWeight)))
	}
	if rnd.IntN(2) == 0 {
		for range n {
			m.osds.affinity = append(m.osds.affinity, pick(wholeWeight, 0, rnd.Uint32N(wholeWeight)))
		}
	}
	some := func() []int32 {
		set := make([]int32, 1+rnd.IntN(5))
		for i := range set {
			set[i] = int32(rnd.IntN(n))
		}
		return set
	}
	for id := int64(1); id < 5; id++ {
		p := &Pool{
			Kind: PoolReplicated, Peering: Peering{Size: uint8(1 + rnd.IntN(6))}, rule: uint8(pick(replicatedRules...)), objectHash: hashRjenkins,
			PGNum: 1 + rnd.Uint32N(40), Flags: poolHashed, ReadTier: -1, WriteTier: -1,
		}
		p.pgpNum = 1 + rnd.Uint32N(p.PGNum)
		if id%2 == 0 {
			p.Kind, p.rule = poolErasure, uint8(pick(erasureRules...))
		}
		if rnd.IntN(4) == 0 {
			p.Flags = 0
		}
		m.pools[id], m.names[id] = p, fmt.Sprintf("pool%d", id)
		for range rnd.IntN(12) {
			m.upmap[PG{id, rnd.Uint32N(p.PGNum)}] = some()
			g := PG{id, rnd.Uint32N(p.PGNum)}
			m.upmapItems[g] = append(m.upmapItems[g], [2]int32{int32(rnd.IntN(n)), int32(rnd.IntN(n))})
			m.pgTemp[PG{id, rnd.Uint32N(p.PGNum)}] = some()
			m.primaryTemp[PG{id, rnd.Uint32N(p.PGNum)}] = int32(rnd.IntN(n))
		}
	}
	return m
}
