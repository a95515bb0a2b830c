package compress_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/internal/compress"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

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

// A segment that grows beyond the limit ends the frame, and takes no
// memory for more than the limit.
// Matrix: FR-32, HI-21
func TestABombInAGoodFrameTakesNoMemory(t *testing.T) {
	const limit = 1 << 20
	forMethods(t, func(t *testing.T, c frame.Compressor, _ wire.CompressionMethod) {
		bomb, err := c.Compress(nil, make([]byte, 16<<20))
		must(t, err)
		var before, after runtime.MemStats
		first := true
		_, err = sendForged(t, c, make([]byte, 2*len(bomb)+4096), limit, func(p []byte) []byte {
			if first {
				first = false // the header's segment stays
				return p
			}
			runtime.ReadMemStats(&before)
			return bomb
		})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, frame.ErrDecompress) || !errors.Is(err, compress.ErrTooLarge) {
			t.Fatal(err)
		}
		// The frame itself, and twice the limit for what grows.
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*limit+4<<20 {
			t.Errorf("took %d bytes", took)
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
