package crush

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var le = binary.LittleEndian

func read(t testing.TB, path string) []byte {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each mapping that crushtool printed is found: of maps with each algorithm, profile of tunables,
// kind of rule, device classes and choose_args, of three releases.
func TestMappingsAreThoseOfCrushtool(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.crush")
	if err != nil || len(paths) != 8 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		m, err := Decode(read(t, path))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		text := bytes.NewReader(captured.Unzip(t, strings.TrimSuffix(path, ".crush")+".mappings.gz"))
		var w Work
		n, bad := 0, 0
		for lines := bufio.NewScanner(text); lines.Scan(); n++ {
			weights, rule, x, size, want := mapping(t, lines.Text())
			var out [MaxResult]int32
			got := out[:m.Do(&w, rule, x, -1, weights, out[:size])]
			if fmt.Sprint(got) != want {
				if bad++; bad < 5 {
					t.Errorf("%s: %s\n  got %v", path, lines.Text(), got)
				}
			}
		}
		if bad > 0 || n == 0 {
			t.Errorf("%s: %d of %d mappings differ", path, bad, n)
		}
	}
}

// mapping parses a line: weights that are not 1, the number of devices, what crushtool says.
func mapping(t *testing.T, line string) (weights []uint32, rule int, x uint32, size int, want string) {
	t.Helper()
	parts := strings.Split(line, "; ")
	if _, err := fmt.Sscanf(parts[1], "num-rep %d", &size); err != nil {
		t.Fatal(line)
	}
	if _, err := fmt.Sscanf(parts[2], "CRUSH rule %d x %d", &rule, &x); err != nil {
		t.Fatal(line)
	}
	weights = slices.Repeat([]uint32{0x10000}, 100)
	for _, part := range strings.Split(parts[0], ", ") {
		if device, weight, ok := strings.Cut(strings.TrimPrefix(part, "osd."), " "); ok && part != "all in" {
			i, _ := strconv.Atoi(device)
			v, _ := strconv.ParseFloat(weight, 64)
			weights[i] = uint32(v * 0x10000)
		}
	}
	_, list, _ := strings.Cut(line, "[")
	return weights, rule, x, size, "[" + strings.ReplaceAll(list, ",", " ")
}

func TestLogarithmsAreThoseOfAllImplementations(t *testing.T) {
	t.Parallel()
	var want map[string]any
	if err := json.Unmarshal(read(t, "testdata/hashes.json"), &want); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for u := range uint32(1 << 16) {
		all = le.AppendUint64(all, ln(u))
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(all)); got != want["crush_ln_all_sha256"] {
		t.Errorf("sha256 %s, want %s", got, want["crush_ln_all_sha256"])
	}
}

// draw skips items by this, whatever other errors the logarithm has.
func TestAHigherHashNeverHasAHigherDraw(t *testing.T) {
	t.Parallel()
	for u := range uint32(1<<16 - 1) {
		if before, draw := drawOf(min(u, ordered)), drawOf(u+1); draw > before {
			t.Errorf("hash %d draws %d, a lower one %d", u+1, draw, before)
		}
	}
}

// Few weights and hashes, so that equal quotients are common: the draw is that of a plain search.
func TestTheFirstOfTheLowestQuotientsIsDrawn(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	var w Work
	weights := []uint32{0, 1, 0x8000, 0x10000, 0x10000, 0x20000, 0xffffffff}
	for range 20000 {
		straws := make([]straw, 2+rnd.IntN(8))
		for i := range straws {
			straws[i] = straw{rnd.Uint32N(20), weights[rnd.IntN(len(weights))]}
		}
		w.x = rnd.Uint32N(1000)
		r := rnd.Uint32N(50)
		want, low := 0, uint64(math.MaxUint64)
		for i, s := range straws {
			if s.weight == 0 {
				continue
			}
			if q := drawOf(hash3(w.x, s.id, r)&0xffff) / uint64(s.weight); q < low {
				want, low = i, q
			}
		}
		if got := w.draw(straws, r); got != want {
			t.Fatalf("%v at %d, %d: drew %d, want %d", straws, w.x, r, got, want)
		}
	}
}

// testMap makes maps by hand: each bucket is straw2, with items of weight 1.
type testMap struct {
	buckets [][]int32
	kinds   []uint16
	rules   []rule
	tail    []byte
	devices int32
}

func appendU32s(p []byte, list ...uint32) []byte {
	for _, v := range list {
		p = le.AppendUint32(p, v)
	}
	return p
}

func (m *testMap) encode() []byte {
	p := appendU32s(nil, magic, uint32(len(m.buckets)), uint32(len(m.rules)), uint32(m.devices))
	for i, items := range m.buckets {
		p = appendU32s(p, algStraw2, uint32(-1-i))
		p = append(le.AppendUint16(p, m.kinds[i]), algStraw2, 0)
		p = appendU32s(p, 0, uint32(len(items)))
		for _, item := range items {
			p = le.AppendUint32(p, uint32(item))
		}
		p = appendU32s(p, slices.Repeat([]uint32{0x10000}, len(items))...)
	}
	for _, r := range m.rules {
		p = append(appendU32s(p, 1, uint32(len(r.steps))), 0, r.kind, 1, 10)
		for _, s := range r.steps {
			p = appendU32s(p, s.op, uint32(s.arg1), uint32(s.arg2))
		}
	}
	return append(append(p, make([]byte, 12)...), m.tail...)
}

// A map may say that a bucket contains itself, that a device is to be looked for four billion times, or for
// so many devices. A mapping still ends, and has no device where it could not be finished.
func TestAMappingEndsWhateverTheMapSays(t *testing.T) {
	t.Parallel()
	const most = 0x7fffffff
	tries := bytes.Repeat([]byte{0xff}, 12+4+1+1+4+1) // all tunables up to stable, at their most
	wide := make([]int32, 10000)
	for i := range wide {
		wide[i] = int32(i)
	}
	msr := func(n int) []step {
		s := []step{{opSetMSRDescents, most, 0}, {opSetMSRCollisions, most, 0}, {opTake, -1, 0}}
		for range n {
			s = append(s, step{opChooseMSR, 1, 7})
		}
		return append(s, step{opChooseMSR, 0, 0}, step{opEmit, 0, 0})
	}
	take, emit := step{opTake, -1, 0}, step{opEmit, 0, 0}
	for _, c := range []struct {
		name string
		m    testMap
	}{
		{"a bucket in itself", testMap{buckets: [][]int32{{-1}}}},
		{"a circle of buckets", testMap{buckets: [][]int32{{-2, -2}, {-1, -1}}}},
		{"buckets of the wanted type in a circle", testMap{buckets: [][]int32{{-2}, {-2}}, kinds: []uint16{9, 7}}},
		{"devices that are all out", testMap{buckets: [][]int32{wide}}},
		{"devices that the map does not have", testMap{buckets: [][]int32{{most, most - 1, -1 << 31, -77}}}},
		{"no items", testMap{buckets: [][]int32{{}}}},
		{"a bucket that claims to be a device", testMap{buckets: [][]int32{{-2}, {-2, 0}}, kinds: []uint16{9, 0}}},
	} {
		if c.m.kinds == nil {
			c.m.kinds = slices.Repeat([]uint16{9}, len(c.m.buckets))
		}
		c.m.devices, c.m.tail = most, append(slices.Clone(tries), bytes.Repeat([]byte{0}, 16)...)
		c.m.rules = []rule{{4, msr(1)}, {5, msr(0)}, {4, msr(14)}, {5, msr(40)}, {5, []step{take, {opChooseMSR, most, 7}, {opChooseMSR, most, 0}, emit}}}
		for _, op := range []uint32{opChooseFirstn, opChooseIndep, opLeafFirstn, opLeafIndep} {
			set := []step{{opSetTries, most, 0}, {opSetLeafTries, most, 0}, {opSetLocalTries, most, 0}, take}
			for _, choose := range []step{{op, 0, 0}, {op, most, 7}, {op, -1, -1}} {
				c.m.rules = append(c.m.rules, rule{1, append(slices.Clone(set), choose, choose, emit)})
			}
		}
		m, err := Decode(c.m.encode())
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		m.budget >>= 4 // which takes seconds less
		var w Work
		for i := range m.rules {
			out := make([]int32, 300)
			n := m.Do(&w, i, 5, 1, nil, out)
			for _, device := range out[:n] {
				if device != None && device < most-1 && device != 0 {
					t.Errorf("%s: rule %d has device %d, which is out", c.name, i, device)
				}
			}
			if w.budget < -1<<16 {
				t.Errorf("%s: rule %d goes on for %d items behind its budget", c.name, i, -w.budget)
			}
		}
	}
}

func TestMalformedMapsAreRefused(t *testing.T) {
	t.Parallel()
	good := testMap{buckets: [][]int32{{0, 1}}, kinds: []uint16{1}, devices: 2, rules: []rule{{1, []step{{opTake, -1, 0}}}}}
	change := func(at int, b ...byte) []byte {
		p := good.encode()
		copy(p[at:], b)
		return p
	}
	sets := func(b ...uint32) []byte {
		m := good
		m.tail = appendU32s(make([]byte, 23+12), b...)
		return m.encode()
	}
	for name, p := range map[string][]byte{
		"empty":                     nil,
		"magic number":              change(0, 1),
		"negative buckets":          change(7, 0xff),
		"a billion buckets":         change(7, 0x40),
		"a billion rules":           change(11, 0x40),
		"algorithm":                 change(16, 9),
		"two algorithms":            change(16, 4),
		"id of another":             change(20, 0x11),
		"hash":                      change(27, 1),
		"a billion items":           change(35, 0x40),
		"set of another size":       sets(1, 1, 0, 1, 0, 1, 3, 1, 1, 1, 0),
		"ids of another size":       sets(1, 1, 0, 1, 0, 0, 1, 5),
		"a billion positions":       sets(1, 1, 0, 1, 0, 1<<30),
		"a set that is not there":   sets(1),
		"a map that ends too early": good.encode()[:60],
	} {
		if _, err := Decode(p); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode(sets(1, 1, 0, 1, 0, 1, 2, 1, 1, 0)); err != nil {
		t.Error(err)
	}
	tree := []byte{0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, algTree, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, algTree, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, nodes := range []byte{0, 1, 3} {
		if _, err := Decode(append(append(slices.Clone(tree), nodes), make([]byte, 100)...)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("tree of %d nodes: %v", nodes, err)
		}
	}
}

// What Decode takes can be mapped, and takes memory in proportion to its size.
func FuzzDecode(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.crush")
	for _, path := range paths {
		f.Add(read(f, path), uint32(1))
	}
	f.Fuzz(func(t *testing.T, p []byte, x uint32) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := Decode(p)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(64*len(p)+(1<<20)) {
			t.Fatalf("%d bytes of input took %d", len(p), used)
		}
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		m.budget = 1 << 12
		var w Work
		out, weights := make([]int32, 6), slices.Repeat([]uint32{0x8000}, 64)
		for rule := range min(len(m.rules), 4) {
			for _, device := range out[:m.Do(&w, rule, x, -1, weights, out)] {
				if device < 0 && m.bucket(device) == nil {
					t.Fatalf("rule %d: %v", rule, out)
				}
			}
		}
	})
}
