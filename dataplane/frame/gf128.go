package frame

import (
	"encoding/binary"
	"math/bits"
)

// gf128 is an element of the field of GHASH (NIST SP 800-38D, section 6.3): a
// polynomial over one bit, modulo x^128 + x^7 + x^2 + x + 1. The highest bit of
// hi is the coefficient of x^0, the lowest bit of lo that of x^127, so that a
// block of GCM is just two big-endian words.
//
// The time of no operation depends on a value: there is no branch and no table.
type gf128 struct{ hi, lo uint64 }

func loadGF(p []byte) gf128 {
	return gf128{binary.BigEndian.Uint64(p), binary.BigEndian.Uint64(p[8:])}
}

func (a gf128) put(p []byte) {
	binary.BigEndian.PutUint64(p, a.hi)
	binary.BigEndian.PutUint64(p[8:], a.lo)
}

func (a gf128) add(b gf128) gf128 { return gf128{a.hi ^ b.hi, a.lo ^ b.lo} }

func (a gf128) mul(b gf128) gf128 {
	// Karatsuba: three products of halves in place of four.
	z3, z2 := clmul(a.hi, b.hi)
	z1, z0 := clmul(a.lo, b.lo)
	m1, m0 := clmul(a.hi^a.lo, b.hi^b.lo)
	m1, m0 = m1^z3^z1, m0^z2^z0
	z2, z1 = z2^m1, z1^m0

	// The product of mirrored polynomials lacks one place.
	z3, z2, z1, z0 = z3<<1|z2>>63, z2<<1|z1>>63, z1<<1|z0>>63, z0<<1

	// x^128 = 1 + x + x^2 + x^7 brings the two words of high degree down.
	z2 ^= z0 ^ z0>>1 ^ z0>>2 ^ z0>>7
	z1 ^= z0<<63 ^ z0<<62 ^ z0<<57
	z3 ^= z1 ^ z1>>1 ^ z1>>2 ^ z1>>7
	z2 ^= z1<<63 ^ z1<<62 ^ z1<<57
	return gf128{z3, z2}
}

// inverse is a to the power of 2^128 - 2, which is 1/a; of zero it is zero.
func (a gf128) inverse() gf128 {
	// r is a to the power of 2^n - 1, for n = 1, 3, 7 ... 127.
	r := a
	for n := 1; n < 127; n = 2*n + 1 {
		s := r
		for range n {
			s = s.mul(s)
		}
		r = s.mul(r)
		r = r.mul(r).mul(a)
	}
	return r.mul(r)
}

// clmul multiplies without carries. The words are taken apart into four each
// with one bit in four, so that an ordinary product has three bits of room above
// each of its bits, and what is carried there is dropped: that bears sums of up
// to 15. The four top bits of y, which would make it 16, are treated apart.
func clmul(x, y uint64) (hi, lo uint64) {
	const (
		k0         = 0x1111111111111111
		k1, k2, k3 = k0 << 1, k0 << 2, k0 << 3
		low60      = 1<<60 - 1
	)
	x0, x1, x2, x3 := x&k0, x&k1, x&k2, x&k3
	y0, y1, y2, y3 := y&(k0&low60), y&(k1&low60), y&(k2&low60), y&(k3&low60)

	ah, al := bits.Mul64(x0, y0)
	bh, bl := bits.Mul64(x1, y3)
	ch, cl := bits.Mul64(x2, y2)
	dh, dl := bits.Mul64(x3, y1)
	hi = (ah ^ bh ^ ch ^ dh) & k0
	lo = (al ^ bl ^ cl ^ dl) & k0

	ah, al = bits.Mul64(x0, y1)
	bh, bl = bits.Mul64(x1, y0)
	ch, cl = bits.Mul64(x2, y3)
	dh, dl = bits.Mul64(x3, y2)
	hi |= (ah ^ bh ^ ch ^ dh) & k1
	lo |= (al ^ bl ^ cl ^ dl) & k1

	ah, al = bits.Mul64(x0, y2)
	bh, bl = bits.Mul64(x1, y1)
	ch, cl = bits.Mul64(x2, y0)
	dh, dl = bits.Mul64(x3, y3)
	hi |= (ah ^ bh ^ ch ^ dh) & k2
	lo |= (al ^ bl ^ cl ^ dl) & k2

	ah, al = bits.Mul64(x0, y3)
	bh, bl = bits.Mul64(x1, y2)
	ch, cl = bits.Mul64(x2, y1)
	dh, dl = bits.Mul64(x3, y0)
	hi |= (ah ^ bh ^ ch ^ dh) & k3
	lo |= (al ^ bl ^ cl ^ dl) & k3

	t0, t1, t2, t3 := -(y >> 60 & 1), -(y >> 61 & 1), -(y >> 62 & 1), -(y >> 63)
	hi ^= x>>4&t0 ^ x>>3&t1 ^ x>>2&t2 ^ x>>1&t3
	lo ^= x<<60&t0 ^ x<<61&t1 ^ x<<62&t2 ^ x<<63&t3
	return hi, lo
}
