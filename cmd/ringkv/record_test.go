package main

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// segmentOf is the bytes of a segment that begins with a mark, has values of several sizes
// and ends with a mark, and where each record begins. Each was written when those before it
// were acknowledged.
func segmentOf(salt uint32) (data []byte, offs []int) {
	values := [][]byte{nil, []byte("v"), bytes.Repeat([]byte("long "), 40), nil, []byte("last"), nil}
	for i, value := range values {
		offs = append(offs, len(data))
		r := record{kind: kindPut, key: fmt.Appendf(nil, "key %d", i), value: value, durable: positionOf(7, int64(len(data))), off: int64(len(data))}
		switch i {
		case 0:
			r.kind, r.key, r.durable = kindMark, nil, positionOf(6, 100)
		case 3:
			r.kind = kindDelete
		case len(values) - 1:
			r.kind, r.key = kindMark, nil
		}
		data = append(append(data, appendHeader(nil, &r, salt)...), value...)
	}
	return data, append(offs, len(data))
}

func TestATornTailIsCutOffAtEveryByte(t *testing.T) {
	whole, offs := segmentOf(1)
	for n := range whole {
		for _, tail := range [][]byte{nil, make([]byte, 100), bytes.Repeat([]byte("k"), 100), whole[:min(n, 64)]} {
			data := append(bytes.Clone(whole[:n]), tail...)
			c := scan(data, 1)
			want := 0
			for _, off := range offs {
				if off <= n {
					want = off
				}
			}
			sure, end := c.end(7)
			if end < int64(want) || !slices.Contains(offs, int(end)) || !bytes.Equal(data[:end], whole[:end]) || sure > end || c.check(sure) != nil {
				t.Fatalf("%d bytes and %d others: it ends at %d, want %d; %d are sure, %v", n, len(tail), end, want, sure, c.check(sure))
			}
		}
	}
}

func TestAFlippedBitIsNoticedWhereverItIs(t *testing.T) {
	whole, offs := segmentOf(1)
	last := offs[len(offs)-2]
	want := scan(whole, 1)
	for at := range last {
		for bit := range 8 {
			data := bytes.Clone(whole)
			data[at] ^= 1 << bit
			c := scan(data, 1)
			sure, end := c.end(7)
			if sure != int64(last) || end < sure {
				t.Fatalf("byte %d: up to %d it is sure, want %d, and it ends at %d", at, sure, last, end)
			}
			if c.check(sure) != nil {
				continue // the server does not start
			}
			damaged := 0
			for i, r := range c.records {
				if w := want.records[i]; r.kind != w.kind || !bytes.Equal(r.key, w.key) || r.off != w.off || r.size != w.size {
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
}

// Bytes of a client that look like a record, or those of another file, are none.
func TestARecordIsOneInItsPlaceAlone(t *testing.T) {
	whole, _ := segmentOf(1)
	if c := scan(whole, 2); len(c.records) != 0 || c.gap != 0 {
		t.Error("read with another salt")
	}
	if c := scan(append(make([]byte, 1), whole...), 1); len(c.records) != 0 {
		t.Error("read at another offset")
	}
}
