// Package codec measures the frame codec in secure mode against crypto/cipher,
// which it is built on: how fast data segments become encrypted frames and the
// other way round, on one core, with nothing else in the way.
package codec

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// ErrCodec says that the codec gave back something else than it was given.
var ErrCodec = errors.New("frame codec")

// Options says how much to measure.
type Options struct {
	Sizes  []int         // bytes of the data segment
	Rounds int           // samples of each size and operation
	Slice  time.Duration // of one sample, for both sides together, at least
}

// batchBytes is about what one side does before it is the other's turn: long
// enough for the clock, short enough that both see the same machine.
const batchBytes = 256 << 10

// allocationFrames is how many frames allocations are counted for.
const allocationFrames = 64

// Measure measures all sizes. say is told what begins.
func Measure(ctx context.Context, o Options, say func(what string)) ([]report.Codec, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all []report.Codec
	for _, size := range o.Sizes {
		b, err := newBench(size)
		if err != nil {
			return nil, err
		}
		for _, op := range []operation{b.seal(), b.open()} {
			say(fmt.Sprintf("frame codec: %s %s", op.name, quantity.Bytes(int64(size))))
			c := report.Codec{Size: size, Op: op.name}
			if err := b.measure(ctx, o, op, &c); err != nil {
				return nil, fmt.Errorf("%s %s: %w", op.name, quantity.Bytes(int64(size)), err)
			}
			c.Compute()
			all = append(all, c)
		}
	}
	return all, nil
}

// side does one batch.
type side struct {
	prepare func() error // not timed
	run     func() error
}

// operation is the same work for both sides.
type operation struct {
	name          string
	codec, cipher side
}

// bench is what the operations on one size work with.
type bench struct {
	size   int
	batch  int
	header [frame.MessageHeaderSize]byte
	data   []byte // the user's

	enc    *frame.Encoder
	dec    *frame.Decoder // of the frames to be opened
	opened *frame.Encoder
	frames [][]byte

	gcm    cipher.AEAD
	nonce  [12]byte
	sealed [][]byte
}

func newBench(size int) (*bench, error) {
	b := &bench{
		size: size, batch: max(1, batchBytes/size), data: make([]byte, size),
		enc: frame.NewEncoder(frame.Rev1), opened: frame.NewEncoder(frame.Rev1),
		dec: frame.NewDecoder(frame.Rev1, frame.DefaultLimits()),
	}
	for i := range b.data {
		b.data[i] = byte(i * 7)
	}
	frame.MessageHeader{Seq: 1, Type: 1, Flags: 3}.Put(&b.header)
	key := [16]byte{1, 2, 3, 4}
	if err := errors.Join(b.enc.Secure(key, b.nonce), b.opened.Secure(key, b.nonce), b.dec.Secure(key, b.nonce)); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	if b.gcm, err = cipher.NewGCM(block); err != nil {
		return nil, err
	}
	for range b.batch {
		b.frames = append(b.frames, make([]byte, 0, b.enc.FrameSize(len(b.header), 0, 0, size)))
		b.sealed = append(b.sealed, make([]byte, 0, size+b.gcm.Overhead()))
	}
	return b, nil
}

// seal makes frames out of the user's memory.
func (b *bench) seal() operation {
	return operation{
		"seal",
		side{nothing, func() error { return b.encode(b.enc) }},
		side{nothing, b.sealSegments},
	}
}

func nothing() error { return nil }

// open takes them apart where they lie, as they are received.
func (b *bench) open() operation {
	return operation{
		"open",
		side{func() error { return b.encode(b.opened) }, b.decode},
		side{b.sealSegments, b.openSegments},
	}
}

func (b *bench) encode(enc *frame.Encoder) error {
	for i := range b.frames {
		out, err := enc.AppendFrame(b.frames[i][:0], frame.TagMessage, b.header[:], nil, nil, b.data)
		if err != nil {
			return err
		}
		b.frames[i] = out
	}
	return nil
}

func (b *bench) decode() error {
	for _, p := range b.frames {
		n := b.dec.HeadSize()
		h, err := b.dec.Open(p[:n])
		if err != nil {
			return err
		}
		f, err := b.dec.Finish(h, p[:n], p[n:])
		if err != nil {
			return err
		}
		if len(f.Seg[3]) != b.size {
			return fmt.Errorf("%w: %d bytes of data", ErrCodec, len(f.Seg[3]))
		}
	}
	return nil
}

func (b *bench) sealSegments() error {
	for i := range b.sealed {
		b.sealed[i] = b.gcm.Seal(b.sealed[i][:0], b.nonce[:], b.data, nil)
	}
	return nil
}

func (b *bench) openSegments() error {
	for _, p := range b.sealed {
		if _, err := b.gcm.Open(p[:0], b.nonce[:], p, nil); err != nil {
			return err
		}
	}
	return nil
}

// measure takes all samples of one operation, and counts its allocations.
func (b *bench) measure(ctx context.Context, o Options, op operation, c *report.Codec) error {
	var err error
	if c.Allocations, err = b.allocations(op.codec); err != nil { // it warms up, too
		return err
	}
	if op.name == "open" && !bytes.Equal(b.frames[0][b.dec.HeadSize():][:b.size], b.data) {
		return fmt.Errorf("%w: other data came back", ErrCodec)
	}
	if _, err := timed(op.cipher); err != nil {
		return err
	}
	for round := range o.Rounds {
		var own, cipher time.Duration
		n := 0
		for began := time.Now(); n == 0 || time.Since(began) < o.Slice; n++ {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// Who comes second finds another cache.
			first, second, a, z := op.codec, op.cipher, &own, &cipher
			if n%2 == 1 {
				first, second, a, z = second, first, z, a
			}
			t1, err := timed(first)
			if err != nil {
				return err
			}
			t2, err := timed(second)
			if err != nil {
				return err
			}
			*a += t1
			*z += t2
		}
		per := float64(n * b.batch)
		c.Samples = append(c.Samples, report.CodecSample{Round: round + 1, NS: float64(own) / per, CipherNS: float64(cipher) / per})
	}
	return nil
}

// timed does one batch and returns the CPU time of it: what others do on the
// same core is not counted.
func timed(s side) (time.Duration, error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	began, err := threadTime()
	if err != nil {
		return 0, err
	}
	if err := s.run(); err != nil {
		return 0, err
	}
	ended, err := threadTime()
	return ended - began, err
}

// threadTime is the CPU time of this thread.
func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("read CPU clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// allocations returns the whole number of allocations per frame, on average.
// What other goroutines allocate meanwhile counts as well, so that a few among
// all frames are nothing.
func (b *bench) allocations(s side) (float64, error) {
	var before, after runtime.MemStats
	total, frames := uint64(0), 0
	for i := 0; i == 0 || frames < allocationFrames; i++ {
		if err := s.prepare(); err != nil {
			return 0, err
		}
		runtime.ReadMemStats(&before)
		err := s.run()
		runtime.ReadMemStats(&after)
		if err != nil {
			return 0, err
		}
		if i > 0 { // the first one warms up
			total += after.Mallocs - before.Mallocs
			frames += b.batch
		}
	}
	return float64(total / uint64(frames)), nil
}
