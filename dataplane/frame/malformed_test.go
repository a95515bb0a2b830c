package frame

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

var threeFull = [4][]byte{pattern(60, 1), pattern(20, 2), nil, pattern(33, 3)}

// Every single bit of a frame matters, except those that the protocol tells
// receivers to ignore: padding is under the tag, too.
// Matrix: FR-13, FR-14, FR-15
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		for _, segs := range [][4][]byte{threeFull, {pattern(41, 1)}, {pattern(60, 1)}, {nil, pattern(5, 2)}, {}} {
			f := newRefFrame(m.rev, TagMessage, segs[:]...)
			wire := f.wire(m.rev, m.crypt())
			epilogue := m.wireSize(len(segs[0]), len(segs[1]), len(segs[2]), len(segs[3])) - 13
			if m.rev == Rev0 {
				epilogue -= 4
			}
			for i := range wire {
				if !m.secure && f.num > 1 || !m.secure && m.rev == Rev0 {
					if i == epilogue {
						continue // late status has its own test
					}
					used := int(f.num) - 1
					if m.rev == Rev0 {
						used++
					}
					if i > epilogue+4*used {
						continue // crcs of unused segments are not looked at
					}
				}
				for bit := range 8 {
					bad := bytes.Clone(wire)
					bad[i] ^= 1 << bit
					got, _, err := decode(m.decoder(t), bad, i%2 == 0)
					if err == nil || got.Num != 0 || got.Seg[0] != nil {
						t.Fatalf("bit %d of byte %d of %d flipped: frame %+v, error %v", bit, i, len(wire), got, err)
					}
					if early := i < PreambleSize && (!m.secure || m.rev == Rev0); early && !errors.Is(err, ErrPreambleCRC) {
						t.Fatalf("bit %d of byte %d of the preamble flipped: %v goes before its checksum", bit, i, err)
					} else if m.secure && !early {
						wantErr(t, err, ErrAuthTag)
					}
				}
			}
		}
	})
}

// An aborted frame is checked like any other before it is dropped.
// Matrix: FR-14
func TestDamagedSegmentsAreNamed(t *testing.T) {
	for _, rev := range []Revision{Rev0, Rev1} {
		for n := range 8 {
			i := n / 2
			f := newRefFrame(rev, TagMessage, pattern(4, 1), pattern(4, 2), pattern(4, 3), pattern(4, 4))
			f.crcXor[i] = 1
			if n%2 == 1 {
				f.late = 1
			}
			wire := f.wire(rev, nil)
			err := decodeErr(looseDecoder(rev, DefaultLimits()), wire)
			wantErr(t, err, ErrSegmentCRC)
			if want := fmt.Sprintf("segment %d", i); !bytes.Contains([]byte(err.Error()), []byte(want)) {
				t.Errorf("%v does not name %s", err, want)
			}
		}
	}
}

// Matrix: FR-18
func TestLateStatus(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		for late := range 256 {
			f := newRefFrame(m.rev, TagMessage, threeFull[:]...)
			f.late = byte(late)
			next := newRefFrame(m.rev, TagAck, pattern(8, 0))
			c, d := m.crypt(), m.decoder(t)
			wire := f.wire(m.rev, c)
			wire = append(wire, next.wire(m.rev, c)...)
			got, n, err := decode(d, wire, false)

			aborted, bad := late&1 == 1, false
			if m.rev == Rev1 {
				aborted = late&15 == 1
				bad = !aborted && late&15 != 14
			}
			if bad {
				wantErr(t, err, errLateStatus)
				continue
			}
			if err != nil || got.Aborted != aborted {
				t.Fatalf("late status %#x: aborted %v, error %v", late, got.Aborted, err)
			}
			if aborted != equalSegs(got.Seg, [4][]byte{}) || !aborted && !equalSegs(got.Seg, threeFull) {
				t.Fatalf("late status %#x: segments %x", late, got.Seg)
			}
			if got, _, err = decode(d, wire[n:], false); err != nil || got.Tag != TagAck {
				t.Fatalf("frame behind late status %#x: %v", late, err)
			}
		}
	})
}

// Matrix: FR-19, FR-20
func TestWhatReceiversMustIgnore(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		for _, align := range []uint16{0, 1, 3, 4, 7, 4096, 65535} {
			f := newRefFrame(m.rev, Tag(200), threeFull[:]...)
			f.align = [4]uint16{align, align, align, align}
			f.flags, f.reserved, f.padding, f.spareCRC = 0xFE, 0xFF, 0x5A, 0xDEADBEEF
			got, _, err := decode(m.decoder(t), f.wire(m.rev, m.crypt()), false)
			if err != nil || !equalSegs(got.Seg, threeFull) {
				t.Fatalf("alignment %d: %v", align, err)
			}
			if got.Flags != 0xFE || got.Compressed() {
				t.Fatalf("header %+v", got.Header)
			}
		}
		// Two segments, so that there are unused entries, and these not zero.
		f := newRefFrame(m.rev, TagMessage, pattern(41, 1), pattern(5, 2))
		f.lens[3], f.align[3], f.spareCRC = 77, 77, 77
		got, _, err := decode(m.decoder(t), f.wire(m.rev, m.crypt()), false)
		if err != nil || got.Len[3] != 0 || got.Num != 2 {
			t.Fatalf("%+v %v", got.Header, err)
		}
	})
}

func TestWrongNumberOfBytes(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		f := newRefFrame(m.rev, TagMessage, threeFull[:]...)
		wire := f.wire(m.rev, m.crypt())
		d := m.decoder(t)
		n := d.HeadSize()
		for _, size := range []int{0, n - 1, n + 1} {
			wantErr(t, errOf(d.Open(bytes.Clone(wire[:size]))), ErrTruncated)
		}
		h, err := d.Open(wire[:n])
		must(t, err)
		for _, size := range []int{0, len(wire) - n - 1} {
			wantErr(t, errOf(d.Finish(h, wire[:n], wire[n:n+size])), ErrTruncated)
		}
		wantErr(t, errOf(d.Finish(h, wire[:n], append(bytes.Clone(wire[n:]), 0))), ErrTruncated)
		if m.secure {
			wantErr(t, errOf(d.Finish(h, wire[:n-1], wire[n:])), ErrTruncated)
		}
		if _, err = d.Finish(h, wire[:n], wire[n:]); err != nil {
			t.Fatal("wrong calls must not disturb the stream: ", err)
		}
	})
}

func TestForeignHeaderIsMisuse(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		d := m.decoder(t)
		for _, h := range []Header{{}, {Num: 5}, {Num: -1}, {Num: 1, Len: [4]uint32{0, 1}}} {
			wantErr(t, errOf(d.Finish(h, make([]byte, d.HeadSize()), make([]byte, d.RestSize(h)))), errMisuse)
		}
	})
	m := modes[1]
	d := m.decoder(t)
	f := newRefFrame(Rev0, TagAck, pattern(8, 0))
	wire := f.wire(Rev0, m.crypt())
	h, err := d.Open(wire[:32])
	must(t, err)
	h.Tag = TagMessage
	wantErr(t, errOf(d.Finish(h, wire[:32], wire[32:])), errMisuse)
}
