package main

import (
	"slices"
	"testing"
)

// payload is that of message n on connection conn, in a slot.
func payload(p *pattern, conn int, n uint64, slot int) []byte {
	b := slices.Clone(p.window(slot))
	stamp(b, key(conn, n))
	return b
}

func TestEveryChangedByteShows(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 63, 511, 512, 513, 519, 520, 1024, 1500} {
		p := newPattern(n)
		b := payload(p, 3, 17, 5)
		if !matches(b, p.window(5), key(3, 17)) {
			t.Fatalf("%d bytes: the right payload does not match", n)
		}
		for i := range b {
			b[i] ^= 1
			if matches(b, p.window(5), key(3, 17)) {
				t.Fatalf("%d bytes: a change of byte %d does not show", n, i)
			}
			b[i] ^= 1
		}
		if matches(append(b, 0), p.window(5), key(3, 17)) {
			t.Errorf("%d bytes: one more does not show", n)
		}
	}
}

func TestBytesOfAnotherMessageOrPlaceShow(t *testing.T) {
	p := newPattern(4096)
	right := payload(p, 0, 100, 4)
	for name, other := range map[string][]byte{
		"next message":                 payload(p, 0, 101, 5),
		"earlier message of that slot": payload(p, 0, 68, 4),
		"other connection":             payload(p, 1, 100, 4),
	} {
		for at := 0; at < 4096; at += stampEvery {
			b := slices.Clone(right)
			copy(b[at:at+stampEvery], other[at:])
			if matches(b, p.window(4), key(0, 100)) {
				t.Errorf("%s at %d does not show", name, at)
			}
		}
	}
	b := slices.Clone(right)
	copy(b[512:1024], right[1024:1536])
	copy(b[1024:1536], right[512:1024])
	if matches(b, p.window(4), key(0, 100)) {
		t.Error("two blocks that changed places do not show")
	}
}

func FuzzAnyOtherPayloadIsRefused(f *testing.F) {
	f.Add([]byte("some bytes"), uint64(1))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, n uint64) {
		p := newPattern(len(b))
		want := payload(p, 0, n, int(n%7))
		if got := matches(b, p.window(int(n%7)), key(0, n)); got != slices.Equal(b, want) {
			t.Errorf("%x: %v", b, got)
		}
	})
}

func BenchmarkStampAndCheck(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 4 << 20} {
		sz := size(n)
		b.Run(sz.String(), func(b *testing.B) {
			p := newPattern(n)
			buf := slices.Clone(p.window(1))
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				stamp(buf, key(0, i))
				if !matches(buf, p.window(1), key(0, i)) {
					b.Fatal("differs")
				}
			}
		})
	}
}
