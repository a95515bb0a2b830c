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
