package frame

import (
	"bytes"
	"fmt"
	"testing"
)

// shapes are segment lengths that visit every branch of the layouts.
var shapes = [][4]int{
	{}, {1}, {41}, {48}, {49}, {96}, {0, 1}, {41, 16}, {41, 17, 3}, {41, 0, 5},
	{41, 213, 0, 17}, {41, 213, 4, 17}, {41, 213, 4, 18}, {41, 214, 4, 18}, {0, 0, 0, 1}, {49, 1, 2, 3},
	{112, 64, 64, 64}, {41, 100, 7, 5000},
}

func shaped(lens [4]int) (segs [4][]byte) {
	for i, n := range lens {
		segs[i] = pattern(n, byte(i))
	}
	return segs
}

func TestGatheredFrameIsTheSameOnTheWire(t *testing.T) {
	for _, rev := range []Revision{Rev0, Rev1} {
		for _, zeroCRC := range []bool{false, true} {
			g := NewEncoder(rev)
			g.SetSegmentCRC(!zeroCRC)
			_, err := g.AppendFrame(nil, TagClientIdent, pattern(MessageHeaderSize, 0)) // the lengths of the first message
			must(t, err)
			for _, lens := range shapes {
				lens[0] = MessageHeaderSize
				e, segs := NewEncoder(rev), shaped(lens)
				e.SetSegmentCRC(!zeroCRC)
				h, err := ParseMessageHeader(segs[0])
				must(t, err)
				h.Put((*[MessageHeaderSize]byte)(segs[0])) // without what is reserved
				want, err := e.AppendFrame([]byte("abc"), TagMessage, segs[:]...)
				must(t, err)
				open := g.AppendMessage([]byte("abc"), &h, lens[1], lens[2], lens[3])
				for _, s := range segs[1:] {
					open = append(open, s...)
				}
				n := len(open)
				if got := g.AppendClose(open[:n:n], segs); !bytes.Equal(got, want) {
					t.Errorf("%v %v: %x, want %x", rev, lens, got, want)
				}
				var sums [3]uint32 // of an empty segment: anything
				for i, s := range segs[1:] {
					if sums[i] = SegmentCRC(SegmentCRCInit, s); len(s) == 0 {
						sums[i] = 1
					}
				}
				if got := g.AppendEnd(open[:n:n], &sums); !bytes.Equal(got, want) {
					t.Errorf("%v %v, known crcs: %x, want %x", rev, lens, got, want)
				}
			}
		}
	}
}

func TestGatheringIsRefusedWhereItWouldLeak(t *testing.T) {
	mustPanic := func(name string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	e := modes[3].encoder(t)
	if e.Gathers() {
		t.Error("a secure encoder cannot gather")
	}
	mustPanic("secure message", func() { e.AppendMessage(nil, &MessageHeader{}, 0, 0, 0) })
	late := NewEncoder(Rev1) // that has opened a frame before
	late.AppendMessage(nil, &MessageHeader{}, 0, 0, 0)
	late.Compress(&runLength{}, 1)
	mustPanic("compressed message", func() { late.AppendMessage(nil, &MessageHeader{}, 0, 0, 0) })
	late.Compress(nil, 0)
	late.AppendMessage(nil, &MessageHeader{}, 0, 0, 0)
	k, err := KeysFromSecret(make([]byte, 64), true)
	must(t, err)
	must(t, late.Secure(k.Key, k.TxNonce))
	mustPanic("message that is secure by now", func() { late.AppendMessage(nil, &MessageHeader{}, 0, 0, 0) })
	e = NewEncoder(Rev1)
	if !e.Gathers() {
		t.Error("a plain encoder gathers")
	}
	mustPanic("negative length", func() { e.AppendMessage(nil, &MessageHeader{}, -1, 0, 0) })
}

// FinishSplit finds what Finish finds, for good frames and for frames with any
// bit flipped.
func TestFinishSplitEqualsFinish(t *testing.T) {
	for _, rev := range []Revision{Rev0, Rev1} {
		for _, check := range []bool{true, false} {
			for _, lens := range shapes {
				segs := shaped(lens)
				f := newRefFrame(rev, TagMessage, segs[:]...)
				wire := f.wire(rev, nil)
				step := 1
				if len(wire) > 1000 {
					step = 97
				}
				for bit := -1; bit < 8*len(wire); bit += step {
					bad := bytes.Clone(wire)
					if bit >= 0 {
						bad[bit/8] ^= 1 << (bit % 8)
					}
					compareSplit(t, rev, check, bad)
				}
			}
		}
	}
}

func compareSplit(t *testing.T, rev Revision, check bool, wire []byte) {
	t.Helper()
	d := looseDecoder(rev, DefaultLimits())
	d.SetSegmentCRC(check)
	h, err := d.Open(wire[:PreambleSize])
	if err != nil {
		return
	}
	rest := wire[PreambleSize:]
	prefix, suffix := d.Split(h)
	data := int(h.Len[3])
	if prefix+data+suffix != d.RestSize(h) || d.RestSize(h) != len(rest) {
		t.Fatalf("prefix %d, data %d, suffix %d, rest %d of %d", prefix, data, suffix, d.RestSize(h), len(rest))
	}
	want, werr := d.Finish(h, wire[:PreambleSize], rest)
	seg3 := rest[prefix : prefix+data]
	got, gerr := d.FinishSplit(h, rest[:prefix], SegmentCRC(SegmentCRCInit, seg3), rest[prefix+data:])
	if fmt.Sprint(gerr) != fmt.Sprint(werr) {
		t.Fatalf("FinishSplit: %v, Finish: %v", gerr, werr)
	}
	if gerr == nil && got.Seg[3] != nil {
		t.Fatal("Seg[3] is the caller's")
	}
	if gerr == nil && !got.Aborted && data > 0 {
		got.Seg[3] = seg3
	}
	if got.Header != want.Header || got.Aborted != want.Aborted || !equalSegs(got.Seg, want.Seg) {
		t.Fatalf("FinishSplit: %+v, Finish: %+v", got, want)
	}
}

func TestFinishSplitChecksItsArguments(t *testing.T) {
	f := newRefFrame(Rev1, TagMessage, threeFull[:]...)
	wire := f.wire(Rev1, nil)
	d := looseDecoder(Rev1, DefaultLimits())
	h, err := d.Open(wire[:32])
	must(t, err)
	p, s := d.Split(h)
	wantErr(t, errOf(d.FinishSplit(h, wire[:p-1], 0, wire[:s])), ErrTruncated)
	wantErr(t, errOf(d.FinishSplit(h, wire[:p], 0, wire[:s+1])), ErrTruncated)
	h.Num = 9
	wantErr(t, errOf(d.FinishSplit(h, wire[:p], 0, wire[:s])), errMisuse)
	wantErr(t, errOf(modes[3].decoder(t).FinishSplit(Header{Num: 1}, nil, 0, nil)), errMisuse)
}

// With the check off any crc passes, zeros included; the preamble is still
// checked. A checking receiver refuses zeros.
// Matrix: FR-16
func TestSegmentCRCSwitchedOff(t *testing.T) {
	for _, rev := range []Revision{Rev0, Rev1} {
		off, on := NewEncoder(rev), NewEncoder(rev)
		off.SetSegmentCRC(false)
		zeros, err := off.AppendFrame(nil, TagMessage, threeFull[:]...)
		must(t, err)
		if !bytes.Equal(zeros[len(zeros)-12:], make([]byte, 12)) {
			t.Fatalf("crcs %x", zeros[len(zeros)-12:])
		}
		sums, err := on.AppendFrame(nil, TagMessage, threeFull[:]...)
		must(t, err)
		wantErr(t, decodeErr(looseDecoder(rev, DefaultLimits()), zeros), ErrSegmentCRC)
		d := looseDecoder(rev, DefaultLimits())
		if !d.ChecksSegments() {
			t.Fatal("off from the start")
		}
		d.SetSegmentCRC(false)
		if d.ChecksSegments() {
			t.Fatal("not off")
		}
		for _, wire := range [][]byte{zeros, sums} {
			f, _, err := decode(d, wire, false)
			if err != nil || !equalSegs(f.Seg, threeFull) {
				t.Fatal(err)
			}
		}
		zeros[3] ^= 1
		wantErr(t, decodeErr(d, zeros), ErrPreambleCRC)
	}
}
