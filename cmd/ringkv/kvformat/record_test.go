package kvformat_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
)

// segmentOf is the bytes of a segment that has values of several sizes, and where each record
// begins, and the last one ends.
func segmentOf(salt uint32) (data []byte, offs []int) {
	a, b, long := []byte("a"), []byte("b"), bytes.Repeat([]byte("long "), 40)
	for _, r := range []kvformat.Record{{Key: a, Value: a}, {Key: b, Value: long}, {Key: a}, {Key: b, Value: a}} {
		r.Off, r.Sum = int64(len(data)), kvformat.Sum(r.Value)
		offs = append(offs, len(data))
		data = append(r.AppendHeader(data, salt), r.Value...)
	}
	return data, append(offs, len(data))
}

// damagedValues counts the records with a wrong value.
func damagedValues(list []kvformat.Record) (n int) {
	for _, r := range list {
		if !r.Whole {
			n++
		}
	}
	return n
}

// Acknowledged records that are missing are damage. Any other cut is a tail.
// Matrix: KV-03
func TestATornTailIsCutOffAtEveryByte(t *testing.T) {
	whole, offs := segmentOf(1)
	for n := range whole {
		at, there := slices.BinarySearch(offs, n) // the last whole record ends there, or before
		if !there {
			at--
		}
		for _, tail := range [][]byte{nil, make([]byte, 100), bytes.Repeat([]byte("k"), 100), whole[:min(n, 64)]} {
			data := append(bytes.Clone(whole[:n]), tail...)
			for i, sure := range offs {
				list, end, sound := kvformat.ReadAll(data, 1, int64(sure), math.MaxInt64)
				if torn := i <= at; len(tail) == 0 && sound != torn || torn && (!sound || end != int64(offs[at]) || damagedValues(list) > 0) {
					t.Fatalf("%d bytes and %d others, %d are sure: it ends at %d, want %d; sound: %t", n, len(tail), sure, end, offs[at], sound)
				}
			}
		}
	}
}

// Matrix: KV-04
func TestAFlippedBitIsNoticedWhereverItIs(t *testing.T) {
	whole, _ := segmentOf(1)
	end := int64(len(whole))
	want, _, _ := kvformat.ReadAll(whole, 1, end, end)
	for bit := range 8 * len(whole) {
		data := bytes.Clone(whole)
		data[bit/8] ^= 1 << (bit % 8)
		got, _, sound := kvformat.ReadAll(data, 1, end, end)
		same := slices.EqualFunc(got, want, func(g, w kvformat.Record) bool {
			return bytes.Equal(g.Key, w.Key) && g.Off == w.Off && g.Size == w.Size
		})
		if sound && (!same || damagedValues(got) != 1) {
			t.Fatalf("bit %d: nothing is wrong", bit)
		}
	}
}

// A segment that ends within a record, or was acknowledged up to there, is no segment of ours.
// Matrix: KV-10
func TestWhatCountsEndsWithARecord(t *testing.T) {
	whole, offs := segmentOf(1)
	for n := range int64(len(whole)) {
		_, _, most := kvformat.ReadAll(whole, 1, n, n)
		_, _, least := kvformat.ReadAll(whole, 1, n, math.MaxInt64)
		if want := slices.Contains(offs, int(n)); most != want || least != want {
			t.Errorf("at %d: %t, %t, want %t", n, most, least, want)
		}
	}
}

// Bytes of a client that look like a record, or records of another file, are none.
// Matrix: KV-05
func TestARecordIsOneInItsPlaceAlone(t *testing.T) {
	whole, _ := segmentOf(1)
	for salt, data := range map[uint32][]byte{2: whole, 1: append(make([]byte, 1), whole...)} {
		if list, _, _ := kvformat.ReadAll(data, salt, 0, math.MaxInt64); len(list) > 0 {
			t.Error("read with another salt, or at another offset")
		}
	}
}

// A client may choose the bytes after damage, for example headers of long keys everywhere: they
// are not read.
// Matrix: KV-14
func TestDamageIsTheEndOfTheSearch(t *testing.T) {
	whole, _ := segmentOf(1)
	whole[0]++
	data := append(whole, bytes.Repeat([]byte{'k', 0x3f, 0}, 1<<20)...)
	if n := testing.AllocsPerRun(100, func() {
		if _, end, sound := kvformat.ReadAll(data, 1, int64(len(data)), int64(len(data))); sound || end != 0 {
			t.Error("damage is not noticed")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

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
