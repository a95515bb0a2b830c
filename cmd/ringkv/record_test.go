package main

import (
	"bytes"
	"hash/crc32"
	"slices"
	"testing"
)

// segmentOf is the bytes of a segment that has values of several sizes and ends with a mark,
// and where each record begins. Each was written when those before it were acknowledged.
func segmentOf(salt uint32) (data []byte, offs []int) {
	a, b, long := []byte("a"), []byte("b"), bytes.Repeat([]byte("long "), 40)
	for _, r := range []record{{key: a, value: a}, {key: b, value: long}, {key: a}, {key: b, value: a}, {}} {
		r.off, r.durable = int64(len(data)), positionOf(7, int64(len(data)))
		r.sum = crc32.Checksum(r.value, castagnoli)
		offs = append(offs, len(data))
		data = append(r.appendHeader(data, salt), r.value...)
	}
	return data, append(offs, len(data))
}

// youngest is a segment of which nobody says where it ends.
var youngest = segment{number: 7}

// Matrix: KV-03
func TestATornTailIsCutOffAtEveryByte(t *testing.T) {
	whole, offs := segmentOf(1)
	for n := range whole {
		at, there := slices.BinarySearch(offs, n) // what is whole ends at that, or before
		if !there {
			at--
		}
		for _, tail := range [][]byte{nil, make([]byte, 100), bytes.Repeat([]byte("k"), 100), whole[:min(n, 64)]} {
			data := append(bytes.Clone(whole[:n]), tail...)
			_, sure, end := youngest.extent(readRecords(data, 1))
			kept := slices.Contains(offs, int(end)) && bytes.Equal(data[:end], whole[:end])
			if end < int64(offs[at]) || !kept || sure > end {
				t.Fatalf("%d bytes and %d others: it ends at %d, want %d; %d are sure", n, len(tail), end, offs[at], sure)
			}
		}
	}
}

// Matrix: KV-04
func TestAFlippedBitIsNoticedWhereverItIs(t *testing.T) {
	whole, offs := segmentOf(1)
	last, want := offs[len(offs)-2], readRecords(whole, 1)
	for bit := range 8 * last {
		data := bytes.Clone(whole)
		data[bit/8] ^= 1 << (bit % 8)
		got, sure, end := youngest.extent(readRecords(data, 1))
		if end < sure && sure == int64(last) {
			continue // the server does not start
		}
		damaged := 0
		same := slices.EqualFunc(got, want, func(g, w record) bool {
			if !g.whole {
				damaged++
			}
			return bytes.Equal(g.key, w.key) && g.off == w.off && g.size == w.size
		})
		if sure != int64(last) || !same || damaged != 1 {
			t.Fatalf("bit %d: sure up to %d, want %d; the same: %t, damaged: %d", bit, sure, last, same, damaged)
		}
	}
}

// Bytes of a client that look like a record, or those of another file, are none.
// Matrix: KV-05
func TestARecordIsOneInItsPlaceAlone(t *testing.T) {
	whole, _ := segmentOf(1)
	if len(readRecords(whole, 2)) > 0 || len(readRecords(append(make([]byte, 1), whole...), 1)) > 0 {
		t.Error("read with another salt, or at another offset")
	}
}
