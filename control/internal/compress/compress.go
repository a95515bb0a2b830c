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
	"github.com/pierrec/lz4/v4"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

var (
	// ErrMethod: there is no such algorithm here.
	ErrMethod = errors.New("compress: unknown method")
	// ErrCorrupt: the received bytes are no output of the algorithm.
	ErrCorrupt = errors.New("compress: corrupt input")
	// ErrTooLarge: the original is larger than allowed.
	ErrTooLarge = errors.New("compress: original is too large")
)

// Methods are the algorithms of this package.
func Methods() []wire.CompressionMethod {
	return []wire.CompressionMethod{
		wire.CompressionSnappy, wire.CompressionZlib, wire.CompressionZstd, wire.CompressionLZ4,
	}
}

// New makes a compressor. It is safe for concurrent use, so that all
// connections of a messenger share one: some algorithms need a megabyte of
// memory for each goroutine that compresses.
func New(m wire.CompressionMethod) (frame.Compressor, error) {
	switch m {
	case wire.CompressionSnappy:
		return snappyBlock{}, nil
	case wire.CompressionZlib:
		return &deflate{}, nil
	case wire.CompressionZstd:
		return newZstd()
	case wire.CompressionLZ4:
		return &blocks{}, nil
	}
	return nil, fmt.Errorf("%w: %v", ErrMethod, m)
}

// corrupt wraps the error of an algorithm.
func corrupt(err error) error { return fmt.Errorf("%w: %w", ErrCorrupt, err) }

// grow makes room for n bytes behind dst and returns dst and the room.
func grow(dst []byte, n int) (all, room []byte) {
	if cap(dst)-len(dst) < n {
		bigger := make([]byte, len(dst), len(dst)+n)
		copy(bigger, dst)
		dst = bigger
	}
	return dst, dst[len(dst) : len(dst)+n]
}

// claim checks the length that the input claims for the original.
func claim(n uint64, limit int) error {
	if n > uint64(limit) {
		return fmt.Errorf("%w: %d bytes, allowed are %d", ErrTooLarge, n, limit)
	}
	return nil
}

// blocks keeps compressors, whose tables are large.
type blocks struct {
	pool sync.Pool // *lz4.Compressor
}

const (
	lz4Head = 4 // number of blocks
	lz4Pair = 8 // lengths of one block
	// lz4Ratio is more than a block can grow.
	lz4Ratio = 256
)

// Compress implements frame.Compressor. It makes one block.
func (b *blocks) Compress(dst, src []byte) ([]byte, error) {
	c, _ := b.pool.Get().(*lz4.Compressor)
	if c == nil {
		c = new(lz4.Compressor)
	}
	defer b.pool.Put(c)
	dst = binary.LittleEndian.AppendUint32(dst, 1)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(src)))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	at := len(dst)
	dst, room := grow(dst, lz4.CompressBlockBound(len(src)))
	n, err := c.CompressBlock(src, room)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("compress: %d bytes do not compress", len(src))
	}
	binary.LittleEndian.PutUint32(dst[at-4:], uint32(n))
	return dst[:at+n], nil
}

// Decompress implements frame.Compressor.
func (b *blocks) Decompress(dst, src []byte, limit int) ([]byte, error) {
	pairs, body, total, err := lz4Lengths(src)
	if err != nil {
		return nil, err
	}
	if err := claim(total, limit); err != nil {
		return nil, err
	}
	dst, room := grow(dst, int(total))
	done := 0
	for ; len(pairs) > 0; pairs = pairs[lz4Pair:] {
		size := int(binary.LittleEndian.Uint32(pairs))
		packed := int(binary.LittleEndian.Uint32(pairs[4:]))
		if err := lz4Block(room[:done+size], done, body[:packed]); err != nil {
			return nil, err
		}
		done, body = done+size, body[packed:]
	}
	return dst[:len(dst)+done], nil
}

// lz4Lengths checks the lengths: pairs of them, the blocks, and the size of
// the original.
func lz4Lengths(src []byte) (pairs, body []byte, total uint64, err error) {
	if len(src) < lz4Head {
		return nil, nil, 0, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(src))
	}
	count := uint64(binary.LittleEndian.Uint32(src))
	if count*lz4Pair > uint64(len(src)-lz4Head) {
		return nil, nil, 0, fmt.Errorf("%w: %d blocks in %d bytes", ErrCorrupt, count, len(src))
	}
	pairs, body = src[lz4Head:lz4Head+count*lz4Pair], src[lz4Head+count*lz4Pair:]
	var packed uint64
	for p := pairs; len(p) > 0; p = p[lz4Pair:] {
		n, m := uint64(binary.LittleEndian.Uint32(p)), uint64(binary.LittleEndian.Uint32(p[4:]))
		// No writer makes an empty block.
		if n == 0 || n > lz4Ratio*m {
			return nil, nil, 0, fmt.Errorf("%w: block of %d bytes cannot make %d", ErrCorrupt, m, n)
		}
		total += n
		packed += m
	}
	if packed != uint64(len(body)) {
		return nil, nil, 0, fmt.Errorf("%w: blocks of %d bytes in %d", ErrCorrupt, packed, len(body))
	}
	return pairs, body, total, nil
}

// An lz4 block is a row of sequences: a token, whose halves are the number of
// literals and the length of a match less four; more bytes of the former if it
// is 15; the literals; u16 distance of the match; more bytes of its length if
// that is 15. The last sequence ends with its literals.
const (
	lz4MinMatch = 4
	lz4Long     = 15 // in half a token: more bytes follow
	lz4Distance = 2  // bytes of a distance
)

// lz4Block decodes a block into out, from out[at:] on, and must fill it. A
// match may begin anywhere in out before itself, so that a block can refer to
// what stands before at.
//
// The library's decoder is partly assembly without bounds checks. What comes
// from a peer goes through this one, in which the language checks each access.
func lz4Block(out []byte, at int, src []byte) error {
	for len(src) > 0 {
		token := src[0]
		src = src[1:]
		literals, rest, ok := lz4Length(int(token>>4), src, len(out)-at)
		if !ok || literals > len(rest) || literals > len(out)-at {
			return fmt.Errorf("%w: literals beyond the end of an lz4 block", ErrCorrupt)
		}
		at += copy(out[at:], rest[:literals])
		src = rest[literals:]
		if len(src) == 0 {
			if token&lz4Long != 0 || at != len(out) {
				return fmt.Errorf("%w: lz4 block ends %d bytes early", ErrCorrupt, len(out)-at)
			}
			return nil
		}
		if len(src) < lz4Distance {
			return fmt.Errorf("%w: lz4 block ends in a distance", ErrCorrupt)
		}
		distance := int(binary.LittleEndian.Uint16(src))
		length, rest, ok := lz4Length(int(token&lz4Long), src[lz4Distance:], len(out)-at)
		length += lz4MinMatch
		if !ok || length > len(out)-at {
			return fmt.Errorf("%w: match beyond the end of an lz4 block", ErrCorrupt)
		}
		if distance == 0 || distance > at {
			return fmt.Errorf("%w: lz4 match from %d bytes back, there are %d", ErrCorrupt, distance, at)
		}
		lz4Match(out[:at+length], at, distance)
		at += length
		src = rest
	}
	return fmt.Errorf("%w: lz4 block ends with a match", ErrCorrupt)
}

// lz4Length reads the rest of a length whose half of the token is n. It gives
// up once it is above most, so that it cannot overflow.
func lz4Length(n int, src []byte, most int) (length int, rest []byte, ok bool) {
	if n != lz4Long {
		return n, src, true
	}
	for i, b := range src {
		n += int(b)
		if b != 255 {
			return n, src[i+1:], true
		}
		if n > most {
			break
		}
	}
	return 0, nil, false
}

// lz4Match fills out[at:] with what stands distance bytes before. The two may
// overlap: then the bytes repeat, and each round copies twice as many.
func lz4Match(out []byte, at, distance int) {
	for start := at - distance; at < len(out); {
		at += copy(out[at:], out[start:at])
	}
}

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
