package compress

import (
	"encoding/binary"
	"fmt"
)

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
