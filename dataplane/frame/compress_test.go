package frame

import (
	"bytes"
	"errors"
	"testing"
)

var errRunLength = errors.New("bad run")

// runLength is a compressor for tests: pairs of count and byte.
type runLength struct {
	fail    byte // segments that begin with it do not compress
	empty   bool // everything compresses to nothing
	ignore  bool // the bound is not kept
	largest int  // bytes made at most
	calls   int
}

func (c *runLength) Compress(dst, src []byte) ([]byte, error) {
	c.calls++
	if c.empty {
		return dst, nil
	}
	if c.fail != 0 && src[0] == c.fail {
		return append(dst, 0), errRunLength
	}
	for len(src) > 0 {
		n := 1
		for n < len(src) && n < 255 && src[n] == src[0] {
			n++
		}
		dst = append(dst, byte(n), src[0])
		src = src[n:]
	}
	return dst, nil
}

func (c *runLength) Decompress(dst, src []byte, max int) ([]byte, error) {
	start := len(dst)
	for len(src) >= 2 {
		n := int(src[0])
		if len(dst)-start+n > max && !c.ignore {
			return nil, errRunLength
		}
		dst = append(dst, bytes.Repeat(src[1:2], n)...)
		c.largest = len(dst) - start
		src = src[2:]
	}
	if len(src) != 0 {
		return nil, errRunLength
	}
	return dst, nil
}

// Matrix: FR-31
func TestCompressionFromTheMinimumOn(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		e, d := m.encoder(t), m.decoder(t)
		e.Compress(&runLength{}, 1024)
		d.Decompress(&runLength{})
		for _, c := range []struct {
			front, data int
			want        bool
		}{{500, 482, false}, {500, 483, true}, {0, 983, true}, {0, 0, false}} {
			segs := [4][]byte{bytes.Repeat([]byte{1}, 41), make([]byte, c.front), nil, make([]byte, c.data)}
			wire, err := e.AppendFrame(nil, TagMessage, segs[:]...)
			must(t, err)
			f, n, err := decode(d, wire, false)
			if err != nil || n != len(wire) || !equalSegs(f.Seg, segs) {
				t.Fatalf("front %d, data %d: %v", c.front, c.data, err)
			}
			if f.Compressed() != c.want || c.want && f.Len[0] != 2 {
				t.Fatalf("front %d, data %d: header %+v", c.front, c.data, f.Header)
			}
		}
	})
}

// All or nothing: the plain frame goes out when a segment fails, when one
// vanishes, or when nothing is saved.
// Matrix: FR-31
func TestCompressionThatDoesNotPay(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		long := make([]byte, 3000)
		for name, c := range map[string]struct {
			comp runLength
			segs [4][]byte
		}{
			"last segment fails": {runLength{fail: 9}, [4][]byte{pattern(41, 1), long, nil, {9, 9, 9, 9}}},
			"empty output":       {runLength{empty: true}, [4][]byte{pattern(41, 1), long}},
			"grows":              {runLength{}, [4][]byte{pattern(41, 1), pattern(3000, 1)}},
		} {
			e := m.encoder(t)
			e.Compress(&c.comp, 1)
			want, err := m.encoder(t).AppendFrame(nil, TagMessage, c.segs[:]...)
			must(t, err)
			got, err := e.AppendFrame(nil, TagMessage, c.segs[:]...)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: not the plain frame (%v)", name, err)
			}
			if c.comp.calls == 0 {
				t.Errorf("%s: compressor not asked", name)
			}
		}
	})
}

func TestCompressionSwitchedOff(t *testing.T) {
	e, d := NewEncoder(Rev1), looseDecoder(Rev1, DefaultLimits())
	e.Compress(&runLength{}, 0)
	if e.Gathers() {
		t.Error("a compressing encoder cannot gather")
	}
	wire, err := e.AppendFrame(nil, TagMessage, make([]byte, 100))
	must(t, err)
	wantErr(t, errOf(d.Open(bytes.Clone(wire[:32]))), errCompressed)
	d.Decompress(&runLength{})
	h, err := d.Open(bytes.Clone(wire[:32]))
	must(t, err)
	wantErr(t, errOf(d.FinishSplit(h, nil, 0, nil)), errCompressed)
	d.Decompress(nil)
	wantErr(t, errOf(d.Finish(h, nil, wire[32:])), errCompressed)
	e.Compress(nil, 0)
	if !e.Gathers() {
		t.Error("a plain encoder gathers")
	}
}

// The limits hold for what comes out of the decompressor: exactly at the limit
// passes, one byte more does not, and no memory is taken for it.
// Matrix: FR-32, HI-21
func TestDecompressionIsBounded(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		for _, size := range []int{500, 501} {
			for seg := range 4 {
				e, d := m.encoder(t), m.decoder(t)
				comp := &runLength{}
				e.Compress(comp, 0)
				d.Decompress(comp)
				d.SetLimits(Limits{500, 500, 500, 500})
				var segs [4][]byte
				segs[seg] = make([]byte, size)
				wire, err := e.AppendFrame(nil, TagMessage, segs[:]...)
				must(t, err)
				f, _, err := decode(d, wire, false)
				if size == 500 {
					if err != nil || !equalSegs(f.Seg, segs) {
						t.Fatal(err)
					}
					continue
				}
				wantErr(t, err, ErrDecompress)
				if !errors.Is(err, errRunLength) || comp.largest > 500 {
					t.Fatalf("%v; %d bytes made", err, comp.largest)
				}
				// A decompressor that ignores the bound is caught behind it.
				d = m.decoder(t)
				d.Decompress(&runLength{ignore: true})
				d.SetLimits(Limits{500, 500, 500, 500})
				wantErr(t, decodeErr(d, wire), ErrTooLarge)
			}
		}
	})
}

// What one large frame has needed is not kept for the next one.
func TestLargeBuffersAreNotKept(t *testing.T) {
	e, d := modes[1].encoder(t), modes[1].decoder(t)
	e.Compress(&runLength{}, 0)
	for _, size := range []int{1000, keepScratch} {
		wire, err := e.AppendFrame(nil, TagMessage, pattern(size, 1))
		must(t, err)
		_, _, err = decode(d, wire, true)
		must(t, err)
		if (d.early.scratch == nil) != (size == keepScratch) || e.packed == nil || cap(e.packed) > keepPacked {
			t.Errorf("%d bytes: kept %d and %d", size, cap(d.early.scratch), cap(e.packed))
		}
	}
}

// Matrix: FR-33
func TestCorruptCompressedSegments(t *testing.T) {
	forModes(t, func(t *testing.T, m mode) {
		for _, seg := range [][]byte{{1, 2, 3}, {0, 0}, {0}} {
			f := newRefFrame(m.rev, TagMessage, seg)
			f.flags = 1
			d := m.decoder(t)
			d.Decompress(&runLength{})
			wantErr(t, decodeErr(d, f.wire(m.rev, m.crypt())), ErrDecompress)
		}
		// Integrity first: a damaged frame never reaches the decompressor.
		f := newRefFrame(m.rev, TagMessage, []byte{1, 2})
		f.flags = 1
		wire := f.wire(m.rev, m.crypt())
		at := 32 // segment 0
		wire[at] ^= 1
		d := m.decoder(t)
		comp := &runLength{}
		d.Decompress(comp)
		if _, _, err := decode(d, wire, false); err == nil || comp.largest != 0 {
			t.Fatalf("error %v, %d bytes decompressed", err, comp.largest)
		}
	})
}
