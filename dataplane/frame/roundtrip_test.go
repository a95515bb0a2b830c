package frame

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// wireSize is the size of a frame, written down from the protocol text a
// second time.
func (m mode) wireSize(l0, l1, l2, l3 int) int {
	p := func(n int) int { return (n + 15) / 16 * 16 }
	many := l1+l2+l3 > 0
	switch {
	case m.rev == Rev0 && !m.secure:
		return 32 + l0 + l1 + l2 + l3 + 17
	case m.rev == Rev0:
		return 32 + p(l0) + p(l1) + p(l2) + p(l3) + 16 + 16
	case !m.secure:
		n := 32 + l0
		if l0 > 0 {
			n += 4
		}
		if many {
			n += l1 + l2 + l3 + 13
		}
		return n
	}
	n := 96
	if l0 > 48 {
		n += p(l0-48) + 16
	}
	if many {
		n += p(l1) + p(l2) + p(l3) + 32
	}
	return n
}

// Matrix: FR-03, FR-05, FR-07, IN-05, INV-10, FR-09, FR-10, HI-22
func TestRoundTripOfAllShapes(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		for _, packed := range []bool{false, true} {
			for _, l0 := range []int{0, 1, 48, 49} {
				for _, l1 := range []int{0, 101} {
					for _, l2 := range []int{0, 202} {
						for _, l3 := range []int{0, 303} {
							name := fmt.Sprintf("%d,%d,%d,%d,compress=%v", l0, l1, l2, l3, packed)
							segs := shaped([4]int{l0, l1, l2, l3})
							for i := range segs {
								if packed {
									segs[i] = bytes.Repeat([]byte{byte(i)}, len(segs[i]))
								}
							}
							t.Run(name, func(t *testing.T) { roundTrip(t, m, packed, segs) })
						}
					}
				}
			}
		}
	})
}

// roundTrip has segments encoded and decoded thrice, and compares the bytes with the reference.
func roundTrip(t *testing.T, m mode, packed bool, segs [4][]byte) {
	enc, dec, ref := m.encoder(t), m.decoder(t), m.crypt()
	if packed {
		enc.Compress(&runLength{}, 1)
		dec.Decompress(&runLength{})
	}
	lens := [4]int{len(segs[0]), len(segs[1]), len(segs[2]), len(segs[3])}
	size := m.wireSize(lens[0], lens[1], lens[2], lens[3])
	if got := enc.FrameSize(lens[:]...); got != size {
		t.Fatalf("FrameSize %d, want %d", got, size)
	}
	// Dirty room: nothing of it may show on the wire.
	dirty := bytes.Repeat([]byte{0xAA}, 5+3*size)
	dst := dirty[:5]
	var starts []int
	for range 3 {
		starts = append(starts, len(dst))
		var err error
		if dst, err = enc.AppendFrame(dst, TagMessage, segs[:]...); err != nil {
			t.Fatal(err)
		}
	}
	if &dst[0] != &dirty[0] || !bytes.Equal(dst[:5], []byte{0xAA, 0xAA, 0xAA, 0xAA, 0xAA}) {
		t.Fatal("not appended in place")
	}
	left := len(dst) - 5
	for i, start := range starts {
		f, n, err := decode(dec, dst[start:], i == 1)
		must(t, err)
		if !f.Compressed() && n != size || f.Compressed() && n >= size {
			t.Fatalf("%d bytes on the wire, want %d (compressed: %v)", n, size, f.Compressed())
		}
		if f.Tag != TagMessage || f.Aborted || !equalSegs(f.Seg, segs) {
			t.Fatalf("frame %d came back different", i)
		}
		for j, s := range f.Seg {
			if has := len(s) > 0 && !m.secure && !f.Compressed(); f.CRCs.Known[j] != has || has && f.CRCs.Of[j] != SegmentCRC(SegmentCRCInit, s) {
				t.Fatalf("segment %d of %d bytes: crcs %v", j, len(s), f.CRCs)
			}
			if len(s) == 0 && s != nil || cap(s) != len(s) && !f.Compressed() {
				t.Fatalf("segment %d: length %d, capacity %d, nil %v", j, len(s), cap(s), s == nil)
			}
		}
		if want := wireOf(t, m.rev, ref, TagMessage, f.Compressed(), segs); !bytes.Equal(dst[start:start+n], want) {
			t.Fatalf("frame %d on the wire: %x, want %x", i, dst[start:start+n], want)
		}
		left -= n
	}
	if left != 0 {
		t.Fatalf("%d bytes left over", left)
	}
}

// Room behind the head does not mean that the rest is there: what happens to
// lie there must be neither read nor changed.
func TestRoomBehindTheHeadIsNotTakenForTheRest(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		segs := [4][]byte{pattern(100, 1), pattern(5, 2)}
		wire, err := m.encoder(t).AppendFrame(nil, TagMessage, segs[:]...)
		must(t, err)
		d := m.decoder(t)
		buf := bytes.Repeat([]byte{0xAA}, 2*len(wire))
		head := buf[:copy(buf, wire[:d.HeadSize()])]
		rest := wire[len(head):]
		h, err := d.Open(head)
		must(t, err)
		f, err := d.Finish(h, head, rest)
		if err != nil || !equalSegs(f.Seg, segs) {
			t.Fatalf("%x, %v", f.Seg, err)
		}
		if behind := buf[len(head):]; len(bytes.Trim(behind, "\xAA")) != 0 {
			t.Fatalf("changed: %x", behind)
		}
		if &f.Seg[1][0] != &rest[bytes.Index(rest, segs[1])] {
			t.Fatal("segment 1 is not in rest")
		}
	})
}

// A preamble that is the same as the last one is taken without a second look.
// What was set meanwhile counts all the same.
func TestAPreambleThatComesAgainIsHeldToTheLimitsOfNow(t *testing.T) {
	for _, rev := range []Revision{Rev0, Rev1} {
		e := NewEncoder(rev)
		wire, err := e.AppendFrame(nil, TagMessage, pattern(41, 1), pattern(3000, 2))
		must(t, err)
		head := wire[:PreambleSize]
		d := NewDecoder(rev, DefaultLimits())
		for range 3 {
			must(t, decodeErr(d, bytes.Clone(wire)))
		}
		d.SetLimits(Limits{Control: 100, Front: 100})
		if _, err := d.Open(head); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: beyond the new limit: %v", rev, err)
		}
		d.SetLimits(DefaultLimits())

		packer := NewEncoder(rev)
		packer.Compress(&runLength{}, 1)
		packed, err := packer.AppendFrame(nil, TagMessage, bytes.Repeat([]byte{1}, 41), make([]byte, 3000))
		must(t, err)
		d.Decompress(&runLength{})
		must(t, decodeErr(d, bytes.Clone(packed)))
		d.Decompress(nil)
		if _, err := d.Open(packed[:PreambleSize]); !errors.Is(err, errCompressed) {
			t.Errorf("%v: compressed without compression: %v", rev, err)
		}

		must(t, errOf(d.Open(head)))
		for i := range head {
			bad := bytes.Clone(head)
			bad[i] ^= 0x40
			if _, err := d.Open(bad); err == nil {
				t.Errorf("%v: byte %d may change", rev, i)
			}
		}
		must(t, d.Secure(testKey, testNonce))
		sealed, err := mode{rev: rev, secure: true}.encoder(t).AppendFrame(nil, TagMessage, pattern(41, 1), pattern(3000, 2))
		must(t, err)
		must(t, decodeErr(d, sealed)) // has the same preamble
		clear := make([]byte, d.HeadSize())
		copy(clear, head)
		if h, err := d.Open(clear); err == nil && h.Tag == TagMessage {
			t.Errorf("%v: a preamble in clear passes in secure mode", rev)
		}
	}
}
