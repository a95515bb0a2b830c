package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// deflateLevel is what the daemons use unless told otherwise.
const deflateLevel = 5

// deflate keeps writers and readers, which are large.
type deflate struct {
	writers sync.Pool // *flate.Writer
	readers sync.Pool // *inflater
}

// inflater is a reader and its source.
type inflater struct {
	io.ReadCloser // also a flate.Resetter
	src           bytes.Reader
}

func newDeflate() *deflate { return &deflate{} }

// appender is a writer that appends.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// Compress implements frame.Compressor.
func (d *deflate) Compress(dst, src []byte) ([]byte, error) {
	out := appender{append(dst, 0)}
	w, _ := d.writers.Get().(*flate.Writer)
	if w == nil {
		var err error
		if w, err = flate.NewWriter(&out, deflateLevel); err != nil {
			return nil, err // of a wrong level: never
		}
	} else {
		w.Reset(&out)
	}
	_, err := w.Write(src)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	w.Reset(nil) // lets go of the output
	d.writers.Put(w)
	return out.b, nil
}

// firstRoom is what a reader gets at once, in bytes; then it doubles.
const firstRoom = 4 << 10

// Decompress implements frame.Compressor.
func (d *deflate) Decompress(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(src))
	}
	in, _ := d.readers.Get().(*inflater)
	if in == nil {
		in = &inflater{}
		in.src.Reset(src[1:])
		in.ReadCloser = flate.NewReader(&in.src)
	} else {
		in.src.Reset(src[1:])
		if err := in.ReadCloser.(flate.Resetter).Reset(&in.src, nil); err != nil {
			return nil, err // never fails
		}
	}
	out, err := in.all(dst, limit)
	left := in.src.Len()
	in.src.Reset(nil) // lets go of the input
	d.readers.Put(in)
	switch {
	case errors.Is(err, ErrTooLarge):
		return nil, err
	case err != nil:
		return nil, corrupt(err)
	case left > 0:
		return nil, fmt.Errorf("%w: %d bytes behind the end", ErrCorrupt, left)
	}
	return out, nil
}

// all appends everything to dst, at most limit bytes.
func (in *inflater) all(dst []byte, limit int) ([]byte, error) {
	start := len(dst)
	room := firstRoom
	for {
		// One byte more than allowed shows that there is more.
		room = min(room, limit+1-(len(dst)-start))
		var space []byte
		dst, space = grow(dst, room)
		n, err := io.ReadFull(in, space)
		dst = dst[:len(dst)+n]
		switch {
		case len(dst)-start > limit:
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
		case err == io.EOF || err == io.ErrUnexpectedEOF && in.ended():
			return dst, nil
		case err != nil:
			return nil, err
		}
		room = len(dst) - start
	}
}

// ended says whether a short read was the end of the stream, not of the input.
func (in *inflater) ended() bool {
	n, err := in.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

// snappyBlock has no state.
type snappyBlock struct{}

// Compress implements frame.Compressor.
func (snappyBlock) Compress(dst, src []byte) ([]byte, error) {
	n := snappy.MaxEncodedLen(len(src))
	if n < 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(src))
	}
	dst, room := grow(dst, n)
	return dst[:len(dst)+len(snappy.Encode(room, src))], nil
}

// snappyRatio is more than a block can grow: an element of 3 bytes makes at
// most 64.
const snappyRatio = 22

// Decompress implements frame.Compressor.
func (snappyBlock) Decompress(dst, src []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, corrupt(err)
	}
	if err := claim(uint64(n), limit); err != nil {
		return nil, err
	}
	if n/snappyRatio > len(src) {
		return nil, fmt.Errorf("%w: %d bytes cannot make %d", ErrCorrupt, len(src), n)
	}
	dst, room := grow(dst, n)
	out, err := snappy.Decode(room, src)
	if err != nil {
		return nil, corrupt(err)
	}
	return dst[:len(dst)+len(out)], nil
}

// zstandard shares one encoder and one decoder, which keep what they need for
// each goroutine.
type zstandard struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newZstd() (*zstandard, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	// The limit of the output is the room that it gets.
	dec, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, errors.Join(err, enc.Close())
	}
	return &zstandard{enc, dec}, nil
}

// Compress implements frame.Compressor.
func (z *zstandard) Compress(dst, src []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(src)))
	return z.enc.EncodeAll(src, dst), nil
}

// zstdRatio is more than a frame can grow: a block has at least 4 bytes, unless
// it makes nothing, and makes at most 128 KiB.
const zstdRatio = 32 << 10

// Decompress implements frame.Compressor.
func (z *zstandard) Decompress(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < 4 {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(src))
	}
	n := binary.LittleEndian.Uint32(src)
	if err := claim(uint64(n), limit); err != nil {
		return nil, err
	}
	if uint64(n) > zstdRatio*uint64(len(src)) {
		return nil, fmt.Errorf("%w: %d bytes cannot make %d", ErrCorrupt, len(src), n)
	}
	dst, room := grow(dst, int(n))
	out, err := z.dec.DecodeAll(src[4:], room[:0:n])
	if err != nil {
		return nil, corrupt(err)
	}
	if len(out) != int(n) {
		return nil, fmt.Errorf("%w: %d bytes of %d", ErrCorrupt, len(out), n)
	}
	return dst[:len(dst)+len(out)], nil
}
