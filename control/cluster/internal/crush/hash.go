package crush

// The hashes are Robert Jenkins' 96-bit mix, over a seed and two constants.
const (
	hashSeed = 1315423911
	hashX    = 231232
	hashY    = 1232
)

// The nine steps of mix are two functions, so that the compiler inlines both.

func mixFirst(a, b, c uint32) (uint32, uint32, uint32) {
	a = (a - b - c) ^ c>>13
	b = (b - c - a) ^ a<<8
	c = (c - a - b) ^ b>>13
	a = (a - b - c) ^ c>>12
	b = (b - c - a) ^ a<<16
	return a, b, c
}

func mixLast(a, b, c uint32) (uint32, uint32, uint32) {
	c = (c - a - b) ^ b>>5
	a = (a - b - c) ^ c>>3
	b = (b - c - a) ^ a<<10
	c = (c - a - b) ^ b>>15
	return a, b, c
}

// Hash2 is the hash of two integers.
func Hash2(a, b uint32) uint32 {
	h := hashSeed ^ a ^ b
	x, y := uint32(hashX), uint32(hashY)
	a, b, h = mixLast(mixFirst(a, b, h))
	_, _, h = mixLast(mixFirst(x, a, h))
	_, _, h = mixLast(mixFirst(b, y, h))
	return h
}

func hash3(a, b, c uint32) uint32 {
	h := hashSeed ^ a ^ b ^ c
	x, y := uint32(hashX), uint32(hashY)
	a, b, h = mixLast(mixFirst(a, b, h))
	c, x, h = mixLast(mixFirst(c, x, h))
	y, _, h = mixLast(mixFirst(y, a, h))
	_, _, h = mixLast(mixFirst(b, x, h))
	_, _, h = mixLast(mixFirst(y, c, h))
	return h
}

// hash3Twice is hash3 of two values in the place of b. The steps of one wait for each other, so that
// two at a time take two thirds of the time.
func hash3Twice(a, b1, b2, c uint32) (uint32, uint32) {
	h1, h2 := hashSeed^a^b1^c, hashSeed^a^b2^c
	a1, a2, c1, c2 := a, a, c, c
	x1, x2, y1, y2 := uint32(hashX), uint32(hashX), uint32(hashY), uint32(hashY)
	a1, b1, h1 = mixFirst(a1, b1, h1)
	a2, b2, h2 = mixFirst(a2, b2, h2)
	a1, b1, h1 = mixLast(a1, b1, h1)
	a2, b2, h2 = mixLast(a2, b2, h2)
	c1, x1, h1 = mixFirst(c1, x1, h1)
	c2, x2, h2 = mixFirst(c2, x2, h2)
	c1, x1, h1 = mixLast(c1, x1, h1)
	c2, x2, h2 = mixLast(c2, x2, h2)
	y1, a1, h1 = mixFirst(y1, a1, h1)
	y2, a2, h2 = mixFirst(y2, a2, h2)
	y1, _, h1 = mixLast(y1, a1, h1)
	y2, _, h2 = mixLast(y2, a2, h2)
	b1, x1, h1 = mixFirst(b1, x1, h1)
	b2, x2, h2 = mixFirst(b2, x2, h2)
	_, _, h1 = mixLast(b1, x1, h1)
	_, _, h2 = mixLast(b2, x2, h2)
	y1, c1, h1 = mixFirst(y1, c1, h1)
	y2, c2, h2 = mixFirst(y2, c2, h2)
	_, _, h1 = mixLast(y1, c1, h1)
	_, _, h2 = mixLast(y2, c2, h2)
	return h1, h2
}

func hash4(a, b, c, d uint32) uint32 {
	h := hashSeed ^ a ^ b ^ c ^ d
	x, y := uint32(hashX), uint32(hashY)
	a, b, h = mixLast(mixFirst(a, b, h))
	c, d, h = mixLast(mixFirst(c, d, h))
	_, x, h = mixLast(mixFirst(a, x, h))
	y, _, h = mixLast(mixFirst(y, b, h))
	_, _, h = mixLast(mixFirst(c, x, h))
	_, _, h = mixLast(mixFirst(y, d, h))
	return h
}

// HashName is the same mix over the bytes of a name.
func HashName[T string | []byte](s T) uint32 {
	const golden = 0x9e3779b9
	a, b, c := uint32(golden), uint32(golden), uint32(0)
	size := uint32(len(s))
	for ; len(s) >= 12; s = s[12:] {
		a += word(s, 0)
		b += word(s, 4)
		c += word(s, 8)
		a, b, c = mixLast(mixFirst(a, b, c))
	}
	c += size
	for i := range len(s) {
		v := uint32(s[i])
		switch {
		case i < 4:
			a += v << (8 * i)
		case i < 8:
			b += v << (8 * (i - 4))
		default: // the lowest byte of c has the size
			c += v << (8 * (i - 7))
		}
	}
	_, _, c = mixLast(mixFirst(a, b, c))
	return c
}

func word[T string | []byte](s T, i int) uint32 {
	return uint32(s[i]) | uint32(s[i+1])<<8 | uint32(s[i+2])<<16 | uint32(s[i+3])<<24
}
