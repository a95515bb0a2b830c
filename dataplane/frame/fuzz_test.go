package frame

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzDecoder feeds raw bytes, and frames with correct crcs and tags but with
// fields that the fuzzer chose; for the latter the outcome is known.
// Matrix: FR-11, FR-12
func FuzzDecoder(f *testing.F) {
	for name := range loadCaptures(f) {
		f.Add(uint8(2), true, uint8(0), uint8(0), uint8(0), uint16(0), uint64(0), uint32(0), loadStream(f, name, "c2s")[bannerSize:])
	}
	for m := range modes {
		for num := range uint8(6) {
			f.Add(uint8(m), false, num, uint8(0), uint8(0x0E), uint16(8), uint64(0x0005_0003_0011_0029), uint32(0), pattern(100, 1))
			f.Add(uint8(m), false, num, uint8(0), uint8(0x0E), uint16(8), uint64(0x0029), uint32(0), pattern(100, 1)) // the last is empty
		}
		f.Add(uint8(m), false, uint8(4), uint8(1), uint8(1), uint16(65535), uint64(0x0005_0000_0000_0031), uint32(0), pattern(100, 1))
		f.Add(uint8(m), false, uint8(4), uint8(0), uint8(0), uint16(0), uint64(0x0000_0000_0000_0000), uint32(300), pattern(100, 1))
	}
	f.Fuzz(func(t *testing.T, mi uint8, raw bool, num, flags, late uint8, align uint16, lens uint64, flip uint32, body []byte) {
		m := modes[mi%4]
		d := m.decoder(t)
		if raw {
			fuzzStream(t, d, body)
			return
		}
		spec := refFrame{tag: 17, num: num, flags: flags, late: late, align: [4]uint16{align, align, align, align}}
		for i := range 4 {
			if num < 1 || num > 4 || i < int(num) {
				n := min(int(lens>>(16*i)&0x3FF), len(body))
				spec.segs[i], body = body[:n], body[n:]
				spec.lens[i] = uint32(n)
			}
		}
		wire := spec.wire(m.rev, m.crypt())
		if flip != 0 {
			bit := int(flip) % (8 * len(wire))
			wire[bit/8] ^= 1 << (bit % 8)
			if _, _, err := decode(d, wire, flip%2 == 0); err == nil && m.secure {
				t.Fatalf("bit %d flipped, and accepted", bit)
			}
			return
		}
		got, n, err := decode(d, wire, mi >= 128)
		want := expect(m, &spec)
		if !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
		if err != nil {
			return
		}
		if n != len(wire) || got.Num != int(num) || got.Len != spec.lens {
			t.Fatalf("%d of %d bytes, header %+v", n, len(wire), got.Header)
		}
		if !got.Aborted && !equalSegs(got.Seg, spec.segs) {
			t.Fatal("segments differ")
		}
	})
}

// expect is the error that a frame with these fields must give.
func expect(m mode, f *refFrame) error {
	switch {
	case f.num < 1 || f.num > 4 || f.num > 1 && f.lens[f.num-1] == 0:
		return errSegmentCount
	case f.flags&1 != 0:
		return errCompressed
	case m.rev == Rev1 && f.num > 1 && f.late&15 != 1 && f.late&15 != 14:
		return errLateStatus
	}
	return nil
}

// fuzzStream decodes frame after frame; nothing may panic, and what is decoded
// must be consistent.
func fuzzStream(t *testing.T, d *Decoder, b []byte) {
	for {
		f, n, err := decode(d, b, len(b)%2 == 0)
		if err != nil {
			if !errors.Is(err, ErrFrame) && err != errShort {
				t.Fatalf("error %v is not a frame error", err)
			}
			return
		}
		for i, s := range f.Seg {
			if !f.Aborted && len(s) != int(f.Len[i]) {
				t.Fatalf("segment %d has %d bytes, announced %d", i, len(s), f.Len[i])
			}
		}
		b = b[n:]
	}
}

func FuzzMessageHeader(f *testing.F) {
	f.Add(pattern(41, 1))
	f.Add(pattern(40, 1))
	f.Add(bytes.Repeat([]byte{0xFF}, 45))
	f.Fuzz(func(t *testing.T, p []byte) {
		h, err := ParseMessageHeader(p)
		if (err == nil) != (len(p) >= MessageHeaderSize) {
			t.Fatalf("%d bytes: %v", len(p), err)
		}
		if err != nil {
			return
		}
		var b [MessageHeaderSize]byte
		h.Put(&b)
		want := append(bytes.Clone(p[:39]), 0, 0)
		clear(want[22:26]) // padding before the data: no sender has any
		if !bytes.Equal(b[:], want) {
			t.Fatalf("%x, want %x", b, want)
		}
	})
}

// Matrix: FR-07
func FuzzRoundTrip(f *testing.F) {
	for m := range uint8(4) {
		f.Add(m, false, []byte("header"), []byte("front"), []byte{}, []byte("data"))
		f.Add(m, true, make([]byte, 60), make([]byte, 30), make([]byte, 20), []byte{})
	}
	f.Fuzz(func(t *testing.T, m uint8, packed bool, s0, s1, s2, s3 []byte) {
		roundTrip(t, modes[m%4], packed, [4][]byte{s0, s1, s2, s3})
	})
}
