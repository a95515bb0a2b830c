package main

import (
	"bytes"
	"slices"
	"testing"
)

// segmentOf is the bytes of a segment that has values of several sizes and ends with a mark,
// and where each record begins. Each was written when those before it were acknowledged.
func segmentOf(salt uint32) (data []byte, offs []int) {
	long := bytes.Repeat([]byte("long "), 40)
	for _, r := range []record{
		{key: []byte("key 0"), value: []byte("v")}, {key: []byte("key 1"), value: long},
		{key: []byte("key 2")}, {key: []byte("key 3"), value: []byte("last")}, {},
	} {
		r.off, r.durable = int64(len(data)), positionOf(7, int64(len(data)))
		offs = append(offs, len(data))
		data = append(r.appendHeader(data, salt), r.value...)
	}
	return data, append(offs, len(data))
}

// youngest is a segment of which nobody says where it ends.
var youngest = segment{number: 7}

func TestATornTailIsCutOffAtEveryByte(t *testing.T) {
	whole, offs := segmentOf(1)
	for n := range whole {
		other := bytes.Repeat([]byte("k"), 100)
		for _, tail := range [][]byte{nil, make([]byte, 100), other, whole[:min(n, 64)]} {
			data, want := append(bytes.Clone(whole[:n]), tail...), 0
			for _, off := range offs {
				if off <= n {
					want = off
				}
			}
			_, sure, end := youngest.extent(readRecords(data, 1))
			kept := slices.Contains(offs, int(end)) && bytes.Equal(data[:end], whole[:end])
			if end < int64(want) || !kept || sure > end {
				t.Fatalf("%d bytes and %d others: it ends at %d, want %d; %d are sure", n, len(tail), end, want, sure)
			}
		}
	}
}

func TestAFlippedBitIsNoticedWhereverItIs(t *testing.T) {
	whole, offs := segmentOf(1)
	last := offs[len(offs)-2]
	want := readRecords(whole, 1)
	for bit := range 8 * last {
		data, at := bytes.Clone(whole), bit/8
		data[at] ^= 1 << (bit % 8)
		records, sure, end := youngest.extent(readRecords(data, 1))
		if sure != int64(last) {
			t.Fatalf("byte %d: up to %d it is sure, want %d", at, sure, last)
		} else if end < sure {
			continue // the server does not start
		}
		damaged := 0
		for i, r := range records {
			w := want[i]
			if !bytes.Equal(r.key, w.key) || r.off != w.off || r.size != w.size {
				t.Fatalf("byte %d: record %d is another one", at, i)
			}
			if !r.whole {
				damaged++
			}
		}
		if damaged != 1 || len(records) != len(want) {
			t.Fatalf("byte %d: %d of %d records are damaged", at, damaged, len(records))
		}
	}
}

// Bytes of a client that look like a record, or those of another file, are none.
func TestARecordIsOneInItsPlaceAlone(t *testing.T) {
	whole, _ := segmentOf(1)
	if len(readRecords(whole, 2)) > 0 {
		t.Error("read with another salt")
	}
	if len(readRecords(append(make([]byte, 1), whole...), 1)) > 0 {
		t.Error("read at another offset")
	}
}
