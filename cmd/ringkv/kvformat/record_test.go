package kvformat_test

import (
	"bytes"
	"math"
	"slices"
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
