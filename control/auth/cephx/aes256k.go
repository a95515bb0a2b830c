package cephx

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

const (
	tagSize = 24
	// deriveEncrypt and deriveIntegrity are the constants of RFC 8009 for the two keys that
	// are derived for each usage.
	deriveEncrypt   = 0xaa
	deriveIntegrity = 0x55
)

// aes256kScheme is the second kind: aes256-cts-hmac-sha384-192 of RFC 8009 (Ceph's Crypto.cc).
// A cipher text is AES-256-CBC with ciphertext stealing of a random block and the plain text,
// then an HMAC. It is as long as the plain text and 40 bytes.
type aes256kScheme struct{}

func (aes256kScheme) size() int       { return 32 }
func (aes256kScheme) confounder() int { return blockSize }

// derive makes the key of size bytes for one purpose of a usage (section 3 of the RFC; the
// standard library has no such function). The caller clears it.
func derive(secret []byte, u usage, purpose byte, size int) []byte {
	var in [14]byte
	in[3] = 1
	binary.BigEndian.PutUint32(in[4:], uint32(u))
	in[8] = purpose
	binary.BigEndian.PutUint32(in[10:], uint32(8*size))
	h := hmac.New(sha512.New384, secret)
	h.Write(in[:])
	return h.Sum(nil)[:size]
}

// ciphers returns the block cipher of a usage and the HMAC over its encrypted bytes.
func (aes256kScheme) ciphers(secret []byte, u usage) (cipher.Block, hash.Hash, error) {
	ke, ki := derive(secret, u, deriveEncrypt, 32), derive(secret, u, deriveIntegrity, tagSize)
	defer clear(ke)
	defer clear(ki)
	b, err := aes.NewCipher(ke)
	mac := hmac.New(sha512.New384, ki)
	mac.Write(make([]byte, blockSize)) // the IV
	return b, mac, err
}

func (s aes256kScheme) encrypt(secret []byte, u usage, dst []byte, from int) ([]byte, error) {
	b, mac, err := s.ciphers(secret, u)
	if err != nil {
		return nil, err
	}
	n := len(dst)
	for (len(dst)-from)%blockSize != 0 {
		dst = append(dst, 0)
	}
	tail := dst[from:]
	cipher.NewCBCEncrypter(b, make([]byte, blockSize)).CryptBlocks(tail, tail)
	swapLast(tail)
	dst = dst[:n]
	mac.Write(dst[from:])
	return append(dst, mac.Sum(nil)[:tagSize]...), nil
}

// decrypt checks the HMAC before it decodes any byte.
func (s aes256kScheme) decrypt(secret []byte, u usage, p []byte) ([]byte, error) {
	n := len(p) - tagSize
	if n < blockSize {
		return nil, fmt.Errorf("%w: %d bytes of cipher text", wire.ErrMalformed, len(p))
	}
	b, mac, err := s.ciphers(secret, u)
	if err != nil {
		return nil, err
	}
	mac.Write(p[:n])
	if !hmac.Equal(mac.Sum(nil)[:tagSize], p[n:]) {
		return nil, errWrongKey
	}
	// The padding is zero: so the stolen end of the last block but one is the end of the
	// decrypted last block.
	out := append(make([]byte, 0, n+blockSize), p[:n]...)
	if stolen := -n & (blockSize - 1); stolen > 0 {
		var d [blockSize]byte
		b.Decrypt(d[:], out[n+stolen-2*blockSize:])
		out = append(out, d[blockSize-stolen:]...)
		clear(d[:])
	}
	swapLast(out)
	cipher.NewCBCDecrypter(b, make([]byte, blockSize)).CryptBlocks(out, out)
	return out[blockSize:n], nil
}

// swapLast exchanges the last two blocks, if there are two.
func swapLast(p []byte) {
	if n := len(p); n >= 2*blockSize {
		last := [blockSize]byte(p[n-blockSize:])
		copy(p[n-blockSize:], p[n-2*blockSize:n-blockSize])
		copy(p[n-2*blockSize:], last[:])
	}
}

func (aes256kScheme) proof(secret []byte, serverChallenge, clientChallenge uint64) (uint64, error) {
	h := hmac.New(sha256.New, secret)
	h.Write(le.AppendUint64(le.AppendUint64(nil, serverChallenge), clientChallenge))
	return xorWords(h.Sum(nil)), nil
}

func (aes256kScheme) signer(secret []byte, second bool) (frame1.Signer, error) {
	if !second {
		return nil, fmt.Errorf("%w: %v cannot sign messages without the feature CEPHX_V2", errKeyType, AES256K)
	}
	return &aes256kSigner{mac: hmac.New(sha256.New, secret)}, nil
}

type aes256kSigner struct {
	mac hash.Hash
	buf [sha256.Size]byte
}

// Sign implements [frame1.Signer].
func (s *aes256kSigner) Sign(m frame1.Signed) uint64 {
	putSigned(&s.buf, m)
	s.mac.Reset()
	s.mac.Write(s.buf[:])
	return xorWords(s.mac.Sum(s.buf[:0]))
}
