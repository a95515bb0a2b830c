package cephx

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

const (
	blockSize     = aes.BlockSize
	cipherIV      = "cephsageyudagreg"
	envelopeMagic = 0xff009cad8826aa55
	// envelopeHead is u8 version and u64 magic in front of the payload.
	envelopeHead    = 1 + 8
	envelopeVersion = 1
)

// block returns the block cipher of the key.
func (k Key) block() (cipher.Block, error) {
	if k.IsZero() {
		return nil, ErrNoKey
	}
	return aes.NewCipher(k.data().secret[:])
}

// encryptTail pads dst[from:] and encrypts it in place: AES-128-CBC, PKCS#7, constant
// IV (protocol section 2).
func (k Key) encryptTail(dst []byte, from int) ([]byte, error) {
	b, err := k.block()
	if err != nil {
		return nil, err
	}
	pad := blockSize - (len(dst)-from)%blockSize
	for range pad {
		dst = append(dst, byte(pad))
	}
	tail := dst[from:]
	cipher.NewCBCEncrypter(b, []byte(cipherIV)).CryptBlocks(tail, tail)
	return dst, nil
}

// decrypt returns the plain text of p in a slice of its own. The padding is checked
// without a branch on its content.
func (k Key) decrypt(p []byte) ([]byte, error) {
	b, err := k.block()
	if err != nil {
		return nil, err
	}
	if len(p) == 0 || len(p)%blockSize != 0 {
		return nil, fmt.Errorf("%w: %d bytes of cipher text", wire.ErrMalformed, len(p))
	}
	out := make([]byte, len(p))
	cipher.NewCBCDecrypter(b, []byte(cipherIV)).CryptBlocks(out, p)
	last := out[len(out)-blockSize:]
	pad := int(last[blockSize-1])
	good := subtle.ConstantTimeLessOrEq(1, pad) & subtle.ConstantTimeLessOrEq(pad, blockSize)
	for i, c := range last {
		inside := subtle.ConstantTimeLessOrEq(blockSize-i, pad)
		good &= subtle.ConstantTimeSelect(inside, subtle.ConstantTimeByteEq(c, byte(pad)), 1)
	}
	if good != 1 {
		clear(out)
		return nil, ErrWrongKey
	}
	return out[:len(out)-pad], nil
}

// seal appends the bare envelope of payload.
func (k Key) seal(dst, payload []byte) ([]byte, error) {
	from := len(dst)
	dst = append(dst, envelopeVersion)
	dst = le.AppendUint64(dst, envelopeMagic)
	dst = append(dst, payload...)
	return k.encryptTail(dst, from)
}

// sealPrefixed appends the prefixed envelope of payload: u32 length and bare envelope.
func (k Key) sealPrefixed(dst, payload []byte) ([]byte, error) {
	from := len(dst)
	dst, err := k.seal(append(dst, 0, 0, 0, 0), payload)
	if err != nil {
		return nil, err
	}
	le.PutUint32(dst[from:], uint32(len(dst)-from-4))
	return dst, nil
}

// open returns the payload of a bare envelope. The slice is the caller's, who clears it
// if it holds secrets.
func (k Key) open(bare []byte) ([]byte, error) {
	p, err := k.decrypt(bare)
	if err != nil {
		return nil, err
	}
	if len(p) < envelopeHead {
		clear(p)
		return nil, ErrWrongKey
	}
	var head [envelopeHead]byte
	head[0] = envelopeVersion
	le.PutUint64(head[1:], envelopeMagic)
	if subtle.ConstantTimeCompare(head[:], p[:envelopeHead]) != 1 {
		clear(p)
		return nil, ErrWrongKey
	}
	return p[envelopeHead:], nil
}

// openDecode opens a bare envelope, decodes its payload with read, and clears it. What
// read keeps must be a copy. Surplus bytes are tolerated.
func (k Key) openDecode(what string, bare []byte, read func(r *wire.Reader)) error {
	p, err := k.open(bare)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer clear(p)
	r := wire.NewReader(p)
	read(r)
	if err := r.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// proof computes the value with which an entity proves its key at login: the
// consecutive u64 of the prefixed envelope of both challenges, xored, as long as 8
// whole bytes remain. The length prefix counts.
func (k Key) proof(serverChallenge, clientChallenge uint64) (uint64, error) {
	var payload [16]byte
	le.PutUint64(payload[:], serverChallenge)
	le.PutUint64(payload[8:], clientChallenge)
	e, err := k.sealPrefixed(make([]byte, 0, 64), payload[:])
	if err != nil {
		return 0, err
	}
	var x uint64
	for ; len(e) >= 8; e = e[8:] {
		x ^= le.Uint64(e)
	}
	return x, nil
}

// equalU64 compares in constant time.
func equalU64(a, b uint64) bool {
	x := a ^ b
	return subtle.ConstantTimeEq(int32(uint32(x)), 0)&subtle.ConstantTimeEq(int32(uint32(x>>32)), 0) == 1
}
