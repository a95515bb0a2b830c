package main

import (
	"slices"
	"testing"
	"time"
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

func TestQuantilesAreRightToThreePercent(t *testing.T) {
	var l latency
	if l.quantile(0.5) != 0 {
		t.Error("nothing has a quantile")
	}
	for i := 1; i <= 100000; i++ {
		l.add(time.Duration(i) * 137)
	}
	for _, q := range []float64{0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999} {
		want := q * 100000 * 137
		if got := float64(l.quantile(q)); got < 0.97*want || got > 1.03*want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if l.quantile(1) != l.max || l.min != 137 || l.max != 13700000 {
		t.Errorf("min %v, max %v, quantile 1 %v", l.min, l.max, l.quantile(1))
	}
	var sum, other latency
	other.add(5)
	other.add(time.Hour) // beyond the last bucket
	other.add(-1)
	sum.merge(&other)
	sum.merge(&l)
	sum.merge(&latency{})
	if sum.n != 100003 || sum.min != -1 || sum.max != time.Hour || sum.quantile(1) < 8*time.Minute {
		t.Errorf("merged: %d, %v to %v", sum.n, sum.min, sum.max)
	}
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
