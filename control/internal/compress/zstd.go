package compress

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

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
