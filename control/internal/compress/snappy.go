package compress

import (
	"fmt"

	"github.com/klauspost/compress/snappy"
)

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
