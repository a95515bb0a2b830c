package frame1

// polynomial is that of CRC-32C, reflected: bit 31 is x^0.
const polynomial = 0x82f63b78

// powers are x^8, x^16, x^32 and so on, modulo the polynomial: what 1, 2, 4, ... zero
// bytes multiply a crc by.
var powers = func() (p [32]uint32) {
	p[0] = 1 << (31 - 8)
	for i := 1; i < len(p); i++ {
		p[i] = multiply(p[i-1], p[i-1])
	}
	return p
}()

// Reseed converts the crc of n bytes between the protocols: from one that msgr2 has,
// which begins with -1, to that of msgr1, or back. The two differ by what n zero bytes
// make of the difference of the seeds, so that both ways are the same.
func Reseed(crc, n uint32) uint32 {
	diff := ^uint32(0)
	for i := 0; n > 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			diff = multiply(diff, powers[i])
		}
	}
	return crc ^ diff
}

// multiply is the product of two polynomials modulo that of the crc.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ polynomial&-(b&1)
	}
	return product
}
