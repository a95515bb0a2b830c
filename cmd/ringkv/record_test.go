package main

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// segmentOf is the bytes of a segment that has values of several sizes and ends with a mark,
// and where each record begins. Each was written when those before it were acknowledged.
func segmentOf(salt uint32) (data []byte, offs []int) {
	long := bytes.Repeat([]byte("long "), 40)
	for i, r := range []record{
		{kind: kindPut, value: []byte("v")}, {kind: kindPut, value: long}, {kind: kindDelete},
		{kind: kindPut, value: []byte("last")}, {kind: kindMark},
	} {
		if r.kind != kindMark {
			r.key = fmt.Appendf(nil, "key %d", i)
		}
		r.off, r.durable = int64(len(data)), positionOf(7, int64(len(data)))
		offs = append(offs, len(data))
		data = append(append(data, appendHeader(nil, &r, salt)...), r.value...)
	}
	return data, append(offs, len(data))
}

func TestATornTailIsCutOffAtEveryByte(t *testing.T) {
	whole, offs := segmentOf(1)
	for n := range whole {
		other := bytes.Repeat([]byte("k"), 100)
		for _, tail := range [][]byte{nil, make([]byte, 100), other, whole[:min(n, 64)]} {
			data := append(bytes.Clone(whole[:n]), tail...)
			c := look(data, 1)
			want := 0
			for _, off := range offs {
				if off <= n {
					want = off
				}
			}
			sure, end := c.end(7)
			kept := slices.Contains(offs, int(end)) && bytes.Equal(data[:end], whole[:end])
			if end < int64(want) || !kept || sure > end || c.gap < sure {
				t.Fatalf("%d bytes and %d others: it ends at %d, want %d; %d are sure, gap at %d",
					n, len(tail), end, want, sure, c.gap)
			}
		}
	}
}

func TestAFlippedBitIsNoticedWhereverItIs(t *testing.T) {
	whole, offs := segmentOf(1)
	last := offs[len(offs)-2]
	want := look(whole, 1)
	for bit := range 8 * last {
		data, at := bytes.Clone(whole), bit/8
		data[at] ^= 1 << (bit % 8)
		c := look(data, 1)
		if sure, end := c.end(7); sure != int64(last) || end < sure {
			t.Fatalf("byte %d: up to %d it is sure, want %d, and it ends at %d", at, sure, last, end)
		} else if c.gap < sure {
			continue // the server does not start
		}
		damaged := 0
		for i, r := range c.records {
			w := want.records[i]
			if r.kind != w.kind || !bytes.Equal(r.key, w.key) || r.off != w.off || r.size != w.size {
				t.Fatalf("byte %d: record %d is another one", at, i)
			}
			if !r.whole {
				damaged++
			}
		}
		if damaged != 1 || len(c.records) != len(want.records) {
			t.Fatalf("byte %d: %d of %d records are damaged", at, damaged, len(c.records))
		}
	}
}

// Bytes of a client that look like a record, or those of another file, are none.
func TestARecordIsOneInItsPlaceAlone(t *testing.T) {
	whole, _ := segmentOf(1)
	if c := look(whole, 2); len(c.records) != 0 || c.gap != 0 {
		t.Error("read with another salt")
	}
	if c := look(append(make([]byte, 1), whole...), 1); len(c.records) != 0 {
		t.Error("read at another offset")
	}
}
