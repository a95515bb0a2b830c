package kvformat_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
)

// Matrix: KV-10
func TestANameIsOneToTheLastByte(t *testing.T) {
	g := kvformat.Segment{Core: 1, Cores: 2, Number: 3, Salt: 0xdeadbeef, Before: kvformat.At(2, 99)}
	k := kvformat.Mark{Core: 1, Cores: 2, Oldest: 3, Durable: kvformat.At(4, 5)}
	if got, _, cores := kvformat.ParseName(g.Name()); got == nil || *got != g || cores != 2 {
		t.Errorf("%s is %v", g.Name(), got)
	}
	if _, got, cores := kvformat.ParseName(k.Name()); got == nil || *got != k || cores != 2 {
		t.Errorf("%s is %v", k.Name(), got)
	}
	for _, name := range []string{g.Name(), k.Name()} {
		strange := []string{"", name + ".bak", name + "~", name + ".d", name + " ", "0" + name, strings.ToUpper(name), name[:len(name)-1],
			strings.Replace(name, "1of2", "2of2", 1), strings.Replace(name, "1of2", "-1of2", 1), strings.Replace(name, "0000", "+000", 1)}
		for _, other := range strange {
			if g, k, cores := kvformat.ParseName(other); g != nil || k != nil || cores != 0 {
				t.Errorf("%q is taken for %v, %v", other, g, k)
			}
		}
	}
}

// A log of three segments, each of which begins where the one before ends.
// Matrix: KV-10
func TestAChainMissesNothingThatTheNamesSpeakOf(t *testing.T) {
	for _, c := range []struct {
		numbers string // of the existing segments, and where the one before ends
		oldest  uint32
		durable kvformat.Position
		want    string // the segments that count, with their sure ends, and the skipped ones
		lost    int
	}{
		{"", 1, 0, "", 0},
		{"1:0.0 2:1.10 3:2.20", 1, kvformat.At(3, 30), "1:10 2:20 3:30", 0},
		{"1:0.0 2:1.10 3:2.20", 1, kvformat.At(2, 20), "1:10 2:20 3:0", 0},
		{"1:0.0 2:1.10 3:1.10", 1, kvformat.At(1, 10), "1:10 3:0 past 2", 0},
		{"2:1.10 3:2.20", 2, kvformat.At(3, 30), "2:20 3:30", 0},
		{"1:0.0 3:2.20", 3, kvformat.At(3, 30), "3:30 past 1", 0},
		{"1:0.0 2:1.10", 3, kvformat.At(2, 20), "past 2 past 1", 0},
		{"2:1.10 3:2.20", 1, kvformat.At(3, 30), "2:20 3:30", 1},
		{"1:0.0 3:2.20", 1, kvformat.At(3, 30), "1:0 3:30", 1},
		{"1:0.0 2:1.10", 1, kvformat.At(3, 30), "1:10 2:0", 1},
		{"1:0.0 2:1.9", 1, kvformat.At(1, 10), "1:9 2:0", 1},
		{"", 1, kvformat.At(3, 30), "", 1},
		{"", 4, kvformat.At(3, 30), "", 0},
	} {
		var found []*kvformat.Segment
		for _, word := range strings.Fields(c.numbers) {
			var number, before uint32
			var off int64
			_, _ = fmt.Sscanf(word, "%d:%d.%d", &number, &before, &off)
			found = append(found, &kvformat.Segment{Cores: 1, Number: number, Before: kvformat.At(before, off)})
		}
		counts, past, lost := kvformat.Chain(found, &kvformat.Mark{Cores: 1, Oldest: c.oldest, Durable: c.durable})
		var got []string
		for _, g := range counts {
			got = append(got, fmt.Sprintf("%d:%d", g.Number, g.Sure))
		}
		for _, g := range past {
			got = append(got, fmt.Sprint("past ", g.Number))
		}
		if strings.Join(got, " ") != c.want || len(lost) != c.lost {
			t.Errorf("%s from %d to %x: %q, want %s; %q is lost, want %d", c.numbers, c.oldest, c.durable, got, c.want, lost, c.lost)
		}
		if n := len(counts); n > 0 && counts[n-1].End != math.MaxInt64 {
			t.Errorf("%s: the youngest ends at %d", c.numbers, counts[n-1].End)
		}
	}
}
