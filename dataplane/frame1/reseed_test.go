package frame1

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

func TestACRCIsConvertedBetweenTheProtocols(t *testing.T) {
	p := make([]byte, 70_000)
	for i := range p {
		p[i] = byte(i*i>>3 + i)
	}
	sizes := []int{4095, 4096, 4097, 65_535, 65_536, len(p)}
	for n := range 300 {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		one, two := SegmentCRC(0, p[:n]), frame.SegmentCRC(frame.SegmentCRCInit, p[:n])
		if got := Reseed(two, uint32(n)); got != one {
			t.Fatalf("%d bytes: %#x of msgr2 gives %#x, want %#x", n, two, got, one)
		}
		if got := Reseed(one, uint32(n)); got != two {
			t.Fatalf("%d bytes: %#x of msgr1 gives %#x, want %#x", n, one, got, two)
		}
	}
}
