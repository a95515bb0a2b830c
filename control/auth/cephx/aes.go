package cephx

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

const (
	blockSize = aes.BlockSize
	cipherIV  = "cephsageyudagreg"
)

// aesScheme is the first kind: AES-128-CBC with PKCS#7 padding and a constant IV, for
// every usage alike (Ceph's Crypto.cc).
type aesScheme struct{}

func (aesScheme) size() int       { return 16 }
func (aesScheme) confounder() int { return 0 }

func (aesScheme) encrypt(secret []byte, _ usage, dst []byte, from int) ([]byte, error) {
	b, err := aes.NewCipher(secret)
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

// decrypt checks the padding without a branch on its content.
func (aesScheme) decrypt(secret []byte, _ usage, p []byte) ([]byte, error) {
	b, err := aes.NewCipher(secret)
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
		return nil, errWrongKey
	}
	return out[:len(out)-pad], nil
}

// proof is made of the prefixed envelope of both challenges. The length prefix counts.
func (s aesScheme) proof(secret []byte, serverChallenge, clientChallenge uint64) (uint64, error) {
	e := appendEnvelopeHead(append(make([]byte, 0, 64), 32, 0, 0, 0))
	e = le.AppendUint64(le.AppendUint64(e, serverChallenge), clientChallenge)
	e, err := s.encrypt(secret, 0, e, 4)
	return xorWords(e), err
}

func (aesScheme) signer(secret []byte, second bool) (frame1.Signer, error) {
	b, err := aes.NewCipher(secret)
	return &aesSigner{block: b, second: second}, err
}

// aesSigner has both forms of signatures.
type aesSigner struct {
	block  cipher.Block
	second bool
	buf    [32]byte
}

// Sign implements [frame1.Signer].
func (s *aesSigner) Sign(m frame1.Signed) uint64 {
	if s.second {
		putSigned(&s.buf, m)
		s.chain()
		return xorWords(s.buf[:])
	}
	p := appendEnvelopeHead(s.buf[:0])
	for _, v := range [...]uint32{16, m.HeaderCRC, m.FrontCRC, m.MiddleCRC, m.DataCRC} {
		p = le.AppendUint32(p, v)
	}
	s.chain()
	return le.Uint64(s.buf[:])
}

// chain encrypts the buffer in CBC mode. Neither form looks at a block that holds
// padding, so there is none.
func (s *aesSigner) chain() {
	prev := []byte(cipherIV)
	for i := 0; i < len(s.buf); i += blockSize {
		b := s.buf[i : i+blockSize]
		for j := range b {
			b[j] ^= prev[j]
		}
		s.block.Encrypt(b, b)
		prev = b
	}
}
