package cephx

import (
	"crypto/cipher"

	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// Signer computes the signatures of messages of protocol version 1 (section 10.6 of its
// text). It implements [frame1.Signer] and belongs to one goroutine.
type Signer struct {
	block  cipher.Block
	second bool
	buf    [48]byte
}

// NewSigner returns a signer with the session key of a service ticket, of which it keeps
// only the key schedule. second chooses the form: the second one is used if both sides
// have the feature CEPHX_V2.
func NewSigner(session Key, second bool) (*Signer, error) {
	b, err := session.block()
	if err != nil {
		return nil, err
	}
	return &Signer{block: b, second: second}, nil
}

// Sign returns the signature. It does not allocate.
func (s *Signer) Sign(m frame1.Signed) uint64 {
	if s.second {
		return s.signSecond(m)
	}
	p := s.buf[:envelopeHead+20]
	p[0] = envelopeVersion
	le.PutUint64(p[1:], envelopeMagic)
	for i, v := range [...]uint32{16, m.HeaderCRC, m.FrontCRC, m.MiddleCRC, m.DataCRC} {
		le.PutUint32(p[envelopeHead+4*i:], v)
	}
	s.chain(1)
	return le.Uint64(s.buf[:])
}

func (s *Signer) signSecond(m frame1.Signed) uint64 {
	for i, v := range [...]uint32{
		m.HeaderCRC, m.FrontCRC, m.FrontLen, m.MiddleCRC, m.MiddleLen, m.DataCRC, m.DataLen, uint32(m.Seq),
	} {
		le.PutUint32(s.buf[4*i:], v)
	}
	s.chain(2)
	var x uint64
	for i := 0; i < 32; i += 8 {
		x ^= le.Uint64(s.buf[i:])
	}
	return x
}

// chain encrypts the first n blocks of the buffer in CBC mode. Neither form looks at a
// block that holds padding, so there is none.
func (s *Signer) chain(n int) {
	prev := []byte(cipherIV)
	for i := range n {
		b := s.buf[i*blockSize : (i+1)*blockSize]
		for j := range b {
			b[j] ^= prev[j]
		}
		s.block.Encrypt(b, b)
		prev = b
	}
}
