package cephx

import (
	"crypto/subtle"
	"fmt"
	"io"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

const (
	envelopeMagic = 0xff009cad8826aa55
	// envelopeHead is u8 version and u64 magic in front of the payload.
	envelopeHead    = 1 + 8
	envelopeVersion = 1
	// sealSurplus bounds the bytes that encryption appends, some for a moment: padding, then a
	// tag.
	sealSurplus = blockSize + tagSize
)

func appendEnvelopeHead(dst []byte) []byte {
	return le.AppendUint64(append(dst, envelopeVersion), envelopeMagic)
}

// seal appends the bare envelope of payload. The confounder, if the key's kind has one,
// comes from r, or from [crypto/rand] if r is nil.
func (k Key) seal(u usage, dst, payload []byte, r io.Reader) ([]byte, error) {
	s, err := k.scheme()
	if err != nil {
		return nil, err
	}
	from, head := len(dst), s.confounder()
	// It grows once, so that no clear text stays in old memory.
	dst = slices.Grow(dst, head+envelopeHead+len(payload)+sealSurplus)[:from+head]
	if err := random(r, dst[from:]); err != nil {
		return nil, err
	}
	dst = append(appendEnvelopeHead(dst), payload...)
	return s.encrypt(k.data().secret, u, dst, from)
}

// sealPrefixed appends the prefixed envelope of payload: u32 length and bare envelope.
func (k Key) sealPrefixed(u usage, dst, payload []byte, r io.Reader) ([]byte, error) {
	from := len(dst)
	dst, err := k.seal(u, append(dst, 0, 0, 0, 0), payload, r)
	if err != nil {
		return nil, err
	}
	le.PutUint32(dst[from:], uint32(len(dst)-from-4))
	return dst, nil
}

// open returns the payload of a bare envelope. The caller owns the slice, and clears it if it
// holds secrets.
func (k Key) open(u usage, bare []byte) ([]byte, error) {
	s, err := k.scheme()
	if err != nil {
		return nil, err
	}
	p, err := s.decrypt(k.data().secret, u, bare)
	if err != nil {
		return nil, err
	}
	if len(p) < envelopeHead {
		clear(p)
		return nil, errWrongKey
	}
	var head [envelopeHead]byte
	if subtle.ConstantTimeCompare(appendEnvelopeHead(head[:0]), p[:envelopeHead]) != 1 {
		clear(p)
		return nil, errWrongKey
	}
	return p[envelopeHead:], nil
}

// openDecode opens a bare envelope, decodes its payload with read, and clears it. read must
// copy. Surplus bytes are ignored.
func (k Key) openDecode(u usage, bare []byte, read func(r *wire.Reader)) error {
	p, err := k.open(u, bare)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	defer clear(p)
	r := wire.NewReader(p)
	read(r)
	if err := r.Err(); err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	return nil
}

// proof computes the value with which an entity proves its key at login.
func (k Key) proof(serverChallenge, clientChallenge uint64) (uint64, error) {
	s, err := k.scheme()
	if err != nil {
		return 0, err
	}
	return s.proof(k.data().secret, serverChallenge, clientChallenge)
}

// equalU64 compares in constant time.
func equalU64(a, b uint64) bool {
	x := a ^ b
	return subtle.ConstantTimeEq(int32(uint32(x)), 0)&subtle.ConstantTimeEq(int32(uint32(x>>32)), 0) == 1
}
