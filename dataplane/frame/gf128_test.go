package frame

import (
	"math/rand/v2"
	"testing"
)

// gfOne is the neutral element of mul.
var gfOne = gf128{hi: 1 << 63}

// refMul goes bit by bit, as the definition does.
func refMul(a, b gf128) (z gf128) {
	for i := range 128 {
		word := a.hi
		if i >= 64 {
			word = a.lo
		}
		if word>>(63-i%64)&1 == 1 {
			z = z.add(b)
		}
		odd := b.lo&1 == 1
		b = gf128{b.hi >> 1, b.lo>>1 | b.hi<<63}
		if odd {
			b.hi ^= 0xE1 << 56
		}
	}
	return z
}

// gfSamples are the elements that carries, reductions and borders depend on,
// and some by chance.
func gfSamples() []gf128 {
	s := []gf128{{}, gfOne, {^uint64(0), ^uint64(0)}, {0, ^uint64(0)}, {^uint64(0), 0}, {0x1111111111111111, 0x8888888888888888}}
	for i := range 64 {
		s = append(s, gf128{hi: 1 << i}, gf128{lo: 1 << i})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		s = append(s, gf128{rng.Uint64(), rng.Uint64()})
	}
	return s
}

func TestFieldMultiplicationAgreesWithItsDefinition(t *testing.T) {
	samples := gfSamples()
	for _, a := range samples {
		for _, b := range samples {
			if got, want := a.mul(b), refMul(a, b); got != want {
				t.Fatalf("%x * %x = %x, want %x", a, b, got, want)
			}
		}
	}
}
