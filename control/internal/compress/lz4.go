package compress

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// blocks keeps compressors, whose tables are large.
type blocks struct {
	pool sync.Pool // *lz4.Compressor
}

func newLZ4() *blocks { return &blocks{} }

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
