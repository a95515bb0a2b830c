package frame

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

// direction is the AES-128-GCM state of one direction. The zero value is crc
// mode; once secure it stays so, also after wipe: frames must not fall back to
// plain text.
type direction struct {
	secure bool
	block  cipher.Block // revision 0 peeks at single blocks
	aead   cipher.AEAD  // nil after wipe
	chain  *chain       // senders only; nil if it cannot be had
	nonce  nonce

	counterBlock [blockSize]byte // scratch: what is passed to an interface escapes
}

func (d *direction) start(key [16]byte, nonce [12]byte, rev Revision) error {
	if d.secure {
		return fmt.Errorf("%w: already set", ErrKeys)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKeys, err)
	}
	d.secure, d.block, d.aead, d.nonce = true, block, aead, newNonce(nonce, rev)
	return nil
}

// ready tells whether n operations may be done.
func (d *direction) ready(n uint64) error {
	if d.aead == nil {
		return fmt.Errorf("%w: wiped", ErrKeys)
	}
	if left := d.nonce.left(); left < n {
		return fmt.Errorf("%w: %d left, %d needed", errNonceExhausted, left, n)
	}
	return nil
}

// seal encrypts p in place. Its last tagSize bytes are room for the tag. The
// caller has checked ready.
func (d *direction) seal(p []byte) {
	d.aead.Seal(p[:0], d.nonce.b[:], p[:len(p)-tagSize], nil)
	d.nonce.advance()
}

// open decrypts p in place and returns the plain text.
func (d *direction) open(p []byte) ([]byte, error) {
	if err := d.ready(1); err != nil {
		return nil, err
	}
	plain, err := d.aead.Open(p[:0], d.nonce.b[:], p, nil)
	if err != nil {
		return nil, ErrAuthTag
	}
	d.nonce.advance()
	return plain, nil
}

// peek decrypts the first bytes of an operation without authenticating them
// and without advancing the nonce. dst and src have the same length, a multiple
// of blockSize (Ceph's crypto_onwire.cc).
func (d *direction) peek(dst, src []byte) error {
	if err := d.ready(1); err != nil {
		return err
	}
	// GCM encrypts with counter blocks from 2 on: 1 is for the tag.
	copy(d.counterBlock[:], d.nonce.b[:])
	for i := 0; i < len(src); i += blockSize {
		binary.BigEndian.PutUint32(d.counterBlock[12:], uint32(2+i/blockSize))
		d.block.Encrypt(dst[i:i+blockSize], d.counterBlock[:])
		subtle.XORBytes(dst[i:i+blockSize], dst[i:i+blockSize], src[i:i+blockSize])
	}
	return nil
}

// wipe forgets the keys and clears the nonces. The expanded key is in memory of
// crypto/aes, which offers no way to clear it: dropping the only reference is
// all that can be done.
func (d *direction) wipe() {
	if d == nil {
		return
	}
	if d.chain != nil {
		d.chain.wipe()
	}
	d.block, d.aead, d.chain, d.nonce = nil, nil, nil, nonce{}
	clear(d.counterBlock[:])
}
