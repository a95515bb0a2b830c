package frame

import (
	"crypto/cipher"
	"encoding/binary"
)

// chain seals a plain text that lies in several places as one AES-GCM
// operation, so that nothing has to be brought together first. The bytes are the
// same as if it had been in one piece.
//
// crypto/cipher encrypts and authenticates each chunk in one pass, at its full
// speed; the algebra of GHASH joins them (NIST SP 800-38D, sections 6.4 and 7.1).
// With H the hash key, E(x) the encryption of a block, and for chunk n
//
//		J = nonce || number of the last block encrypted before it
//		S = the value of GHASH over all blocks so far
//		L = the bit lengths of additional data and plain text, in one block
//
//	  - crypto/cipher begins to count behind J if its nonce is N, of 16 bytes, with
//	    ((N*H) + 128) * H = J. So N = J/H^2 + 128/H.
//	  - It begins to hash at S if the additional data is the block S/H.
//	  - The tag that it returns is E(J) + (S' + L)*H, with S' the value behind the
//	    chunk. So S'/H = (tag + E(J))/H^2 + L/H.
//	  - The tag of the whole is E(J of the first) + (S' + L of the whole)*H.
type chain struct {
	block cipher.Block
	short cipher.AEAD // nonce of 12 bytes: first chunk
	long  cipher.AEAD // nonce of 16 bytes: the others; nil if there are none

	h, inv, inv2 gf128 // H, 1/H, 1/H^2
	shift        gf128 // 128/H

	// Of the operation under way. What is passed to an interface escapes, so
	// that blocks are kept here.
	counter [blockSize]byte // J
	nonce   [blockSize]byte // N
	before  [blockSize]byte // S/H
	mask    [blockSize]byte // E(J)
	first   gf128           // E(J) of the first chunk
	sum     gf128           // (S' + L)*H of the last chunk
	length  gf128           // L of the last chunk
	blocks  uint64          // encrypted so far
}

// chainFrom is the size of a segment in bytes from which it is encrypted from
// where it lies. To copy a smaller one costs less than two more chunks do, half a
// microsecond or so.
const chainFrom = 32 << 10

// lengths is the last block that GHASH takes.
func lengths(data, text int) gf128 { return gf128{8 * uint64(data), 8 * uint64(text)} }

// newChain returns nil if crypto/cipher does not take nonces of 16 bytes, or if
// H has no inverse (one key in 2^128).
func newChain(block cipher.Block, short cipher.AEAD) *chain {
	long, err := cipher.NewGCMWithNonceSize(block, blockSize)
	if err != nil {
		return nil
	}
	c := &chain{block: block, short: short, long: long}
	block.Encrypt(c.mask[:], c.mask[:])
	c.h = loadGF(c.mask[:])
	if c.h == (gf128{}) {
		return nil
	}
	c.inv = c.h.inverse()
	c.inv2 = c.inv.mul(c.inv)
	c.shift = lengths(0, blockSize).mul(c.inv)
	return c
}

// begin starts an operation.
func (c *chain) begin(nonce *[12]byte) {
	copy(c.counter[:], nonce[:])
	c.blocks = 0
}

// seal encrypts the next chunk, a multiple of blockSize unless it is the last, to
// dst, which has room for a tag behind it. src lies at the beginning of dst, or
// does not overlap it. The tag that is left there is not to be sent; the next
// chunk goes over it.
func (c *chain) seal(dst, src []byte) {
	binary.BigEndian.PutUint32(c.counter[12:], uint32(1+c.blocks))
	aead, nonce, data := c.short, c.counter[:12], c.before[:0]
	if c.blocks > 0 {
		c.sum.mul(c.inv2).add(c.length.mul(c.inv)).put(c.before[:])
		loadGF(c.counter[:]).mul(c.inv2).add(c.shift).put(c.nonce[:])
		aead, nonce, data = c.long, c.nonce[:], c.before[:]
	}
	aead.Seal(dst[:0], nonce, src, data)
	c.block.Encrypt(c.mask[:], c.counter[:])
	mask := loadGF(c.mask[:])
	if c.blocks == 0 {
		c.first = mask
	}
	c.sum = loadGF(dst[len(src):]).add(mask)
	c.length = lengths(len(data), len(src))
	c.blocks += pad(uint64(len(src))) / blockSize
}

// finish replaces the tag behind the last chunk by that of the whole, which has
// size bytes.
func (c *chain) finish(tag []byte, size int) {
	last := c.length.add(lengths(0, size)).mul(c.h)
	c.sum.add(last).add(c.first).put(tag)
}

// wipe clears everything that depends on the key. The expanded keys are out of
// reach, as in direction.wipe.
func (c *chain) wipe() { *c = chain{} }
