package compress_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

func forMethods(t *testing.T, f func(t *testing.T, c frame.Compressor, m wire.CompressionMethod)) {
	for _, m := range compress.Methods() {
		t.Run(m.String(), func(t *testing.T) { f(t, newCompressor(t, m), m) })
	}
}

func newCompressor(t testing.TB, m wire.CompressionMethod) frame.Compressor {
	t.Helper()
	c, err := compress.New(m)
	must(t, err)
	return c
}

func samples() map[string][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	return map[string][]byte{
		"one byte": {7}, "text": []byte(strings.Repeat("a quick brown fox; ", 700)),
		"zeros": make([]byte, 1<<20), "random": random, "page": random[:4096],
		"mixed": append(bytes.Repeat([]byte("abcdef"), 20_000), random...),
	}
}

// Matrix: FR-31
func TestWhatIsCompressedComesBack(t *testing.T) {
	forMethods(t, func(t *testing.T, c frame.Compressor, _ wire.CompressionMethod) {
		for name, p := range samples() {
			for range 4 { // one compressor serves many goroutines
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					packed, err := c.Compress([]byte("before"), p)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.HasPrefix(packed, []byte("before")) {
						t.Fatal("what was there is gone")
					}
					packed = packed[len("before"):]
					if (name == "zeros" || name == "text") && len(packed) > len(p)/4 {
						t.Errorf("%d bytes became %d", len(p), len(packed))
					}
					got, err := c.Decompress([]byte("before"), packed, len(p))
					if err != nil || string(got[:6]) != "before" || !bytes.Equal(got[6:], p) {
						t.Errorf("%v, %d bytes of %d", err, len(got)-6, len(p))
					}
				})
			}
		}
	})
}

// No more than the limit comes out, and it takes no memory for more, however
// little goes in.
// Matrix: FR-32, HI-21
func TestABombIsStoppedAtTheLimit(t *testing.T) {
	forMethods(t, func(t *testing.T, c frame.Compressor, _ wire.CompressionMethod) {
		bomb, err := c.Compress(nil, make([]byte, 16<<20))
		must(t, err)
		for _, limit := range []int{0, 1, 100, 1 << 20, 16<<20 - 1} {
			var got []byte
			took := linktest.Allocated(func() { got, err = c.Decompress(nil, bomb, limit) })
			if !errors.Is(err, compress.ErrTooLarge) {
				t.Fatalf("limit %d: %d bytes, %v", limit, len(got), err)
			}
			// Twice the limit for growing, and what an algorithm needs itself.
			if took > uint64(4*limit)+2<<20 {
				t.Errorf("limit %d: took %d bytes", limit, took)
			}
		}
		if got, err := c.Decompress(nil, bomb, 16<<20); err != nil || len(got) != 16<<20 {
			t.Errorf("at its size: %d bytes, %v", len(got), err)
		}
	})
}

// A length that the input cannot have takes no memory either.
// Matrix: HI-02
func TestAFalseClaimTakesNoMemory(t *testing.T) {
	const limit = 256 << 20
	claims := map[wire.CompressionMethod]string{
		wire.CompressionSnappy: "80808040" + "00",                           // 128 MiB, from one byte
		wire.CompressionLZ4:    "01000000" + "00000008" + "01000000" + "00", // likewise
		wire.CompressionZstd:   "00000008" + "28b52ffd2000010000",           // from one empty block
	}
	for m, text := range claims {
		p, err := hex.DecodeString(text)
		must(t, err)
		c := newCompressor(t, m)
		took := linktest.Allocated(func() { _, err = c.Decompress(nil, p, limit) })
		if !errors.Is(err, compress.ErrCorrupt) {
			t.Errorf("%v: %v", m, err)
		}
		if took > 1<<20 {
			t.Errorf("%v took %d bytes", m, took)
		}
	}
}

func TestCutInputFails(t *testing.T) {
	forMethods(t, func(t *testing.T, c frame.Compressor, m wire.CompressionMethod) {
		p := []byte(strings.Repeat("0123456789 and more ", 60))
		packed, err := c.Compress(nil, p)
		must(t, err)
		for n := range packed {
			if got, err := c.Decompress(nil, packed[:n], len(p)); err == nil {
				t.Errorf("the first %d of %d bytes give %d", n, len(packed), len(got))
			}
		}
		if got, err := c.Decompress(nil, append(bytes.Clone(packed), 1, 2, 3), len(p)); err == nil && m != wire.CompressionZstd {
			t.Errorf("with more behind the end: %d bytes", len(got))
		}
	})
}

// What the daemons' libraries make, by hand, from the formats' definitions.
func TestForeignInput(t *testing.T) {
	lz4Two := []byte{2, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0}
	lz4Two = append(lz4Two, 0x40, 'a', 'b', 'c', 'd')
	// One literal, then a match of 4 from 5 back, which is in the first block;
	// then the literals that a block ends with.
	lz4Two = append(lz4Two, 0x10, 'x', 5, 0, 0x30, 'y', 'z', '.')
	binary.LittleEndian.PutUint32(lz4Two[16:], 8)
	for _, c := range []struct {
		m    wire.CompressionMethod
		in   string
		want string
	}{
		{wire.CompressionSnappy, "\x05\x10hello", "hello"},
		{wire.CompressionSnappy, "\x0a\x00a\x22\x01\x00", "aaaaaaaaaa"},
		{wire.CompressionZlib, "\x00\x01\x05\x00\xfa\xffhello", "hello"},
		{wire.CompressionZlib, "\x01\x01\x05\x00\xfa\xffhello", "hello"}, // another library's mark
		{wire.CompressionZstd, "\x05\x00\x00\x00\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00hello", "hello"},
		{wire.CompressionLZ4, "\x01\x00\x00\x00\x05\x00\x00\x00\x06\x00\x00\x00\x50hello", "hello"},
		{wire.CompressionLZ4, string(lz4Two), "abcdxabcdyz."},
	} {
		got, err := newCompressor(t, c.m).Decompress(nil, []byte(c.in), 100)
		if err != nil || string(got) != c.want {
			t.Errorf("%v %q: %q, %v; want %q", c.m, c.in, got, err, c.want)
		}
	}
}

func TestAMethodWithoutAnAlgorithmHasNoCompressor(t *testing.T) {
	for _, m := range []wire.CompressionMethod{wire.CompressionNone, wire.CompressionBrotli, 77} {
		if _, err := compress.New(m); !errors.Is(err, compress.ErrMethod) {
			t.Errorf("%v: %v", m, err)
		}
	}
}

func FuzzDecompress(f *testing.F) {
	var all []frame.Compressor
	for i, m := range compress.Methods() {
		c := newCompressor(f, m)
		all = append(all, c)
		packed, err := c.Compress(nil, []byte(strings.Repeat("seed ", 40)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), packed)
	}
	// A block of lz4 that claims to make nothing.
	f.Add(uint8(3), []byte("\x01\x00\x00\x00\x00\x00\x00\x00\x18\x00\x00\x00"+strings.Repeat("0", 24)))
	const limit = 1 << 16
	f.Fuzz(func(t *testing.T, which uint8, p []byte) {
		c := all[int(which)%len(all)]
		got, err := c.Decompress(nil, p, limit)
		if err != nil {
			return
		}
		if len(got) > limit {
			t.Fatalf("%d bytes, limit %d", len(got), limit)
		}
		if len(got) == 0 {
			return
		}
		packed, err := c.Compress(nil, got)
		must(t, err)
		if again, err := c.Decompress(nil, packed, limit); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%v, %d bytes of %d", err, len(again), len(got))
		}
	})
}

var must = drivertest.Must

// forger is a compressor whose output is what the test wants. The frame
// around it is right, checksums included.
type forger struct {
	frame.Compressor
	forge func(packed []byte) []byte
}

func (f forger) Compress(dst, src []byte) ([]byte, error) {
	p, err := f.Compressor.Compress(nil, src)
	return append(dst, f.forge(p)...), err
}

// sendForged makes one frame of a message with data and lets the other side
// decode it, within limits.
func sendForged(t *testing.T, c frame.Compressor, data []byte, limit uint32, forge func([]byte) []byte) (frame.Frame, error) {
	t.Helper()
	enc := frame.NewEncoder(frame.Rev1)
	enc.Compress(forger{c, forge}, 0)
	wire, err := enc.AppendFrame(nil, frame.TagMessage, bytes.Repeat([]byte{1}, 41), data)
	must(t, err)
	dec := frame.NewDecoder(frame.Rev1, frame.Limits{Control: limit, Front: limit, Middle: limit, Data: limit})
	dec.Decompress(c)
	h, err := dec.Open(wire[:dec.HeadSize()])
	must(t, err)
	if h.Flags&frame.FlagCompressed == 0 {
		t.Fatal("the frame is not compressed")
	}
	return dec.Finish(h, wire[:dec.HeadSize()], wire[dec.HeadSize():])
}

// Compressed data that was damaged before the checksums were made. Every
// byte of it in turn takes other values; the frame is refused, or holds
// something within the limit, and nothing panics.
// Matrix: FR-33
func TestDamagedSegmentsInGoodFramesAreRefused(t *testing.T) {
	data := []byte(strings.Repeat("some text that compresses; ", 40))
	forMethods(t, func(t *testing.T, c frame.Compressor, _ wire.CompressionMethod) {
		packed, err := c.Compress(nil, data)
		must(t, err)
		refused := 0
		for i := range packed {
			for _, to := range []byte{0, 0xff, packed[i] ^ 0x10} {
				f, err := sendForged(t, c, data, 1<<16, func(p []byte) []byte {
					if i < len(p) && len(p) == len(packed) { // not the header's segment
						p[i] = to
					}
					return p
				})
				switch {
				case err != nil && !errors.Is(err, frame.ErrDecompress):
					t.Fatalf("byte %d: %v", i, err)
				case err != nil:
					refused++
				case len(f.Seg[1]) > 1<<16:
					t.Fatalf("byte %d: %d bytes", i, len(f.Seg[1]))
				}
			}
		}
		if refused == 0 {
			t.Error("nothing was refused")
		}
		if _, err := sendForged(t, c, data, 1<<16, func(p []byte) []byte { return p[:len(p)-1] }); !errors.Is(err, frame.ErrDecompress) {
			t.Errorf("without its last byte: %v", err)
		}
	})
}

// A segment 0 that does not compress grows. With every method it stays within what
// its tag may have on the wire, or honest frames were refused.
func TestNoMethodGrowsAFrameBeyondTheBoundOfItsTag(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 26))
	forMethods(t, func(t *testing.T, c frame.Compressor, _ wire.CompressionMethod) {
		for tag := frame.TagHello; tag.Known(); tag++ {
			b := tag.Bound()
			seg := make([]byte, b.Max)
			for i := range seg {
				seg[i] = byte(rng.Uint32())
			}
			packed, err := c.Compress(nil, seg)
			if err != nil || uint64(len(packed)) > b.Packed() {
				t.Errorf("%v of %d bytes: %d compressed, at most %d are accepted (%v)", tag, b.Max, len(packed), b.Packed(), err)
			}
			if tag != frame.TagMessage {
				continue
			}
			enc, dec := frame.NewEncoder(frame.Rev1), frame.NewDecoder(frame.Rev1, frame.DefaultLimits())
			enc.Compress(c, 0)
			dec.Decompress(c)
			wire, err := enc.AppendFrame(nil, tag, seg, make([]byte, 10000))
			must(t, err)
			head := dec.HeadSize()
			h, err := dec.Open(wire[:head])
			if err != nil || !h.Compressed() {
				t.Fatalf("%v: %v", h, err)
			}
			if f, err := dec.Finish(h, wire[:head], wire[head:]); err != nil || !bytes.Equal(f.Seg[0], seg) {
				t.Errorf("message: %v", err)
			}
		}
	})
}
