package osdmap

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/captured"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var check = drivertest.Must

func decoded(t testing.TB, name string) *Map {
	t.Helper()
	m, err := Decode(captured.Unzip(t, "testdata/"+name+".osdmap.gz"))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// line is how osdmaptool prints where a group is.
func line(m *Map, s *Scratch, g PG) string {
	p := m.pools[g.Pool]
	raw := m.raw(s, p, g, p.seed(g))
	text := fmt.Sprintf("%d.%x raw (%s, p%d)", g.Pool, g.Seed, list(raw), first(raw))
	t := m.Place(s, g)
	return fmt.Sprintf("%s up (%s, p%d) acting (%s, p%d)", text, list(t.Up), t.UpPrimary, list(t.Acting), t.Primary)
}

func list(osds []int32) string { return strings.ReplaceAll(fmt.Sprint(osds), " ", ",") }

// Each group of 33 maps of three releases is where osdmaptool says: by CRUSH, with all exceptions,
// and of both primaries. It is there when CRUSH ran, and when its result was kept.
func TestPlacementsAreThoseOfOsdmaptool(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/*.osdmap.gz")
	if err != nil || len(paths) != 33 {
		t.Fatal(len(paths), err)
	}
	all := 0
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".osdmap.gz")
		t.Run(name, func(t *testing.T) {
			m := decoded(t, name)
			all += judge(t, m, captured.Unzip(t, "testdata/"+name+".dump.gz"))
		})
	}
	if all != 17769 {
		t.Errorf("%d groups", all)
	}
}

// judge compares all groups with the output of osdmaptool --test-map-pgs-dump-all.
func judge(t *testing.T, m *Map, dump []byte) (groups int) {
	t.Helper()
	var s Scratch
	bad := 0
	for lines := bufio.NewScanner(bytes.NewReader(dump)); lines.Scan(); {
		pool, rest, _ := strings.Cut(lines.Text(), ".")
		seed, _, _ := strings.Cut(rest, " ")
		number, err1 := strconv.ParseInt(pool, 10, 64)
		v, err2 := strconv.ParseUint(seed, 16, 32)
		if err1 != nil || err2 != nil {
			continue // a heading, or what the tool says about itself
		}
		groups++
		for range 2 {
			if got := line(m, &s, PG{number, uint32(v)}); got != lines.Text() {
				if bad++; bad < 5 {
					t.Errorf("\n got %s\nwant %s", got, lines.Text())
				}
			}
		}
	}
	if bad > 0 || groups == 0 {
		t.Errorf("%d of %d groups differ", bad/2, groups)
	}
	return groups
}

// A chain of incremental maps leads to the full maps of a monitor, one epoch after the other,
// and what a map has kept of CRUSH is what one that has kept nothing finds.
func TestIncrementalMapsLeadToTheFullOnes(t *testing.T) {
	t.Parallel()
	for name, epochs := range map[string]int{"chain-reef": 232, "chain-tentacle": 236} {
		t.Run(name, func(t *testing.T) {
			var m *Map
			var a, b Scratch
			kept := 0
			chain := captured.Chain(t, "testdata/"+name+".jsonl.gz")
			for _, l := range chain {
				full, err := Decode(l.Full)
				if err != nil {
					t.Fatalf("epoch %d: %v", l.Epoch, err)
				}
				if m == nil {
					m = full
					continue
				}
				inc, err := DecodeIncremental(l.Inc)
				if err != nil {
					t.Fatalf("to epoch %d: %v", l.Epoch, err)
				}
				next, err := inc.Apply(m)
				check(t, err)
				if got, want := plain(next), plain(full); !reflect.DeepEqual(got, want) {
					t.Fatalf("epoch %d:\n got %+v\nwant %+v", l.Epoch, got, want)
				}
				for id, p := range next.pools {
					for seed := range p.PGNum {
						g := PG{id, seed}
						if _, ok := next.tables[id].get(stableMod(seed, p.pgpNum), a.up[:]); ok {
							kept++
						}
						if got, want := line(next, &a, g), line(full, &b, g); got != want {
							t.Errorf("epoch %d:\n got %s\nwant %s", l.Epoch, got, want)
						}
					}
				}
				m = next
			}
			t.Logf("%d placements were kept from the epoch before", kept)
			if n := len(chain); n != epochs+1 || kept < 5000 {
				t.Errorf("%d maps, %d placements kept", n, kept)
			}
		})
	}
}

// plain is a map without what is only kept, and with one form of what has two.
func plain(m *Map) Map {
	c := *m
	c.tables = nil
	c.pgTemp, c.upmap, c.upmapItems = orNil(c.pgTemp), orNil(c.upmap), orNil(c.upmapItems)
	c.primaryTemp, c.upmapPrimary = orNil(c.primaryTemp), orNil(c.upmapPrimary)
	return c
}

func orNil[V any](m map[PG]V) map[PG]V {
	if len(m) == 0 {
		return nil
	}
	return m
}

// Names of 10 000 objects, in namespaces and of all lengths, are in the groups and on the OSDs that
// a monitor says; odd names and the other hash of names likewise.
func TestObjectsAreWhereTheClusterPutsThem(t *testing.T) {
	t.Parallel()
	var file struct{ Rows [][]any }
	check(t, json.Unmarshal(captured.Unzip(t, "testdata/objects-osd-map.json.gz"), &file))
	for _, row := range file.Rows {
		pool := int64(row[0].(float64))
		m := &Map{pools: map[int64]*Pool{pool: {PGNum: uint32(row[1].(float64)), objectHash: hashRjenkins}}}
		g, hash := m.Locate(pool, row[2].(string), row[3].(string))
		if got, want := fmt.Sprintf("%x %x", hash, g.Seed), fmt.Sprintf("%s %s", row[4], row[5]); got != want {
			t.Fatalf("%v: %s", row, got)
		}
	}
	rows := len(file.Rows)
	check(t, json.Unmarshal(captured.Unzip(t, "testdata/objects-test-map-object.json.gz"), &file))
	maps := map[bool]*Map{false: decoded(t, "reef-dcache"), true: decoded(t, "reef-straw2-jewel")}
	var s Scratch
	for _, row := range file.Rows {
		pool := row[0]
		_, other := pool.(string) // the map's name and the pool
		m := maps[other]
		if other {
			pool = 2.0
		}
		name, err := hex.DecodeString(row[1].(string))
		check(t, err)
		g, _ := m.Locate(int64(pool.(float64)), "", string(name))
		if got, want := fmt.Sprintf("%x %s", g.Seed, list(m.Place(&s, g).Acting)), fmt.Sprintf("%s %s", row[2], row[3]); got != want {
			t.Fatalf("%v: %s", row, got)
		}
	}
	if rows != 10000 || len(file.Rows) != 111 {
		t.Errorf("%d and %d names", rows, len(file.Rows))
	}
}
