package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Size is the unit of the file, in bytes: every request is for whole blocks.
const Size = 4096

// ErrBlock is wrapped by the errors of blocks with wrong content.
var ErrBlock = errors.New("wrong block")

// words is a block without its key.
const words = Size / 8

// The words of a block that are not of the pattern: its offset, at both ends, so that
// half a block is noticed, and which writing of it this is.
const (
	atOffset     = 0
	atGeneration = 1
	atEnd        = words - 1
)

// mix spreads the bits of x.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 29
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>32
}

// Fill writes the blocks that stand at off into p, whole blocks.
func Fill(p []byte, off int64, generation uint64) {
	for len(p) >= Size {
		b := (*[Size]byte)(p)
		key := mix(uint64(off) ^ generation<<20)
		for i := range words {
			binary.LittleEndian.PutUint64(b[i*8:], key+uint64(i)*0x9e3779b97f4a7c15)
		}
		put(b, atOffset, uint64(off))
		put(b, atGeneration, generation)
		put(b, atEnd, uint64(off))
		p, off = p[Size:], off+Size
	}
}

// Stamped looks at the ends of each block: they say where it stands. It is cheap enough
// for every request.
func Stamped(p []byte, off int64) error {
	if len(p)%Size != 0 {
		return fmt.Errorf("%w: %d bytes are no whole blocks", ErrBlock, len(p))
	}
	for len(p) >= Size {
		b := (*[Size]byte)(p)
		if head, tail := get(b, atOffset), get(b, atEnd); head != uint64(off) || tail != uint64(off) {
			return fmt.Errorf("%w: at %d stands one of %d, ending as one of %d", ErrBlock, off, head, tail)
		}
		p, off = p[Size:], off+Size
	}
	return nil
}

// Check looks at every byte, and returns the generation of the blocks, which is the same
// for all of them.
func Check(p []byte, off int64) (generation uint64, err error) {
	if err := Stamped(p, off); err != nil {
		return 0, err
	}
	for at := off; len(p) >= Size; p, at = p[Size:], at+Size {
		b := (*[Size]byte)(p)
		if g := get(b, atGeneration); at == off {
			generation = g
		} else if g != generation {
			return 0, fmt.Errorf("%w: generation %d at %d, %d before", ErrBlock, g, at, generation)
		}
		key := mix(uint64(at) ^ generation<<20)
		for i := atGeneration + 1; i < atEnd; i++ {
			if get(b, i) != key+uint64(i)*0x9e3779b97f4a7c15 {
				return 0, fmt.Errorf("%w: bytes differ at %d", ErrBlock, at+int64(i)*8)
			}
		}
	}
	return generation, nil
}

func put(b *[Size]byte, i int, v uint64) { binary.LittleEndian.PutUint64(b[i*8:], v) }
func get(b *[Size]byte, i int) uint64    { return binary.LittleEndian.Uint64(b[i*8:]) }
