package frame

import (
	"math"
	"strconv"
	"testing"
)

func TestLimitsBeforeAuthenticationRefuseMoreThanOneSegment(t *testing.T) {
	f := newRefFrame(Rev1, TagHello, pattern(8, 0), pattern(1, 0))
	_, err := NewDecoder(Rev1, PreAuthLimits()).Open(f.preamble())
	wantErr(t, err, ErrTooLarge)
	f = newRefFrame(Rev1, TagAuthRequest, make([]byte, 64<<10))
	if _, err := NewDecoder(Rev1, PreAuthLimits()).Open(f.preamble()); err != nil {
		t.Fatal(err)
	}
}

// Four lengths of 4 GiB do not wrap an int: where they do not fit, Open says so.
// Matrix: HI-03
func TestHugeLengthsDoNotWrap(t *testing.T) {
	all := Limits{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
	forModes(t, func(t *testing.T, m mode) {
		f := newRefFrame(m.rev, TagMessage, pattern(1, 0))
		f.num = 4
		f.lens = [4]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}
		d := m.decoder(t)
		d.SetLimits(all)
		head := f.wire(m.rev, m.crypt())[:d.HeadSize()]
		h, err := d.Open(head)
		if strconv.IntSize == 32 {
			wantErr(t, err, ErrTooLarge)
			h = Header{Num: 4, Len: f.lens}
		} else if err != nil {
			t.Fatal(err)
		}
		rest := d.RestSize(h)
		prefix, suffix := d.Split(h)
		if rest < math.MaxInt32 || prefix < math.MaxInt32 || suffix < 0 {
			t.Fatalf("rest %d, prefix %d, suffix %d", rest, prefix, suffix)
		}
		if strconv.IntSize == 64 && int64(prefix)+math.MaxUint32+int64(suffix) != int64(rest) {
			t.Fatalf("prefix %d, suffix %d, rest %d", prefix, suffix, rest)
		}
		_, err = d.Finish(h, head, nil)
		wantErr(t, err, ErrTruncated)
	})
}

// Matrix: HI-03
func TestLengthsThatNoFrameCanCarry(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		e := m.encoder(t)
		for _, lens := range [][]int{{-1}, {0, math.MinInt}, {1, 1, 1, 1, 1}} {
			if n := e.FrameSize(lens...); n != -1 {
				t.Errorf("FrameSize%v = %d", lens, n)
			}
			if _, err := makeHeader(0, lens); err == nil {
				t.Errorf("lengths %v accepted", lens)
			}
		}
		if strconv.IntSize == 64 {
			limit := uint64(math.MaxUint32)
			most, over := int(limit), int(limit+1)
			_, err := makeHeader(0, []int{0, over})
			wantErr(t, err, ErrTooLarge)
			if n := e.FrameSize(0, over); n != -1 {
				t.Errorf("FrameSize %d", n)
			}
			if n := e.FrameSize(0, most, most, most); n < 3*most {
				t.Errorf("FrameSize %d", n)
			}
		} else {
			most := math.MaxInt
			if n := e.FrameSize(0, most, most, most); n != -1 {
				t.Errorf("FrameSize %d", n)
			}
		}
		dst := []byte("kept")
		got, err := e.AppendFrame(dst, TagAck, nil, nil, nil, nil, []byte("x"))
		wantErr(t, err, errSegmentCount)
		if string(got) != "kept" {
			t.Errorf("dst is %q after an error", got)
		}
	})
}
