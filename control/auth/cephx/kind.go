package cephx

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// Kind is the kind of a key: its type on the wire, which decides about the cipher.
type Kind uint16

// The kinds of keys. A higher number is the stronger kind.
const (
	AES     Kind = 1 // AES-128-CBC with a constant IV; all releases
	AES256K Kind = 2 // AES-256 with HMAC-SHA384, as RFC 8009 has it; since 20.2
)

// ParseKind is the opposite of String, for the kinds that there are.
func ParseKind(name string) (Kind, error) {
	for _, k := range []Kind{AES, AES256K} {
		if name == k.String() {
			return k, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", errKeyType, name)
}

// String returns Ceph's name, for example "aes256k".
func (k Kind) String() string {
	switch k {
	case AES:
		return "aes"
	case AES256K:
		return "aes256k"
	}
	return fmt.Sprintf("type %d", uint16(k))
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// scheme has the functions of the keys of one kind. Kinds differ in these alone.
type scheme interface {
	// size is that of a secret, in bytes.
	size() int
	// confounder is the number of random bytes before the clear text.
	confounder() int
	// encrypt replaces dst[from:], which begins with the confounder, by its cipher text.
	encrypt(secret []byte, u usage, dst []byte, from int) ([]byte, error)
	// decrypt returns the plain text without the confounder, in a slice of its own.
	decrypt(secret []byte, u usage, p []byte) ([]byte, error)
	// proof proves the secret at login.
	proof(secret []byte, serverChallenge, clientChallenge uint64) (uint64, error)
	// signer signs messages of protocol version 1; second chooses the form.
	signer(secret []byte, second bool) (frame1.Signer, error)
}

// scheme is nil for a kind that is unknown.
func (k Kind) scheme() scheme {
	switch k {
	case AES:
		return aesScheme{}
	case AES256K:
		return aes256kScheme{}
	}
	return nil
}

// usage is the purpose of an encryption. Kinds that derive keys have a key for each.
type usage uint32

const (
	useSecret    usage = 0x03 // blob C of a login reply
	useGrant     usage = 0x04
	useOldTicket usage = 0x05 // a ticket under the session key of the earlier one
	useAuthorize usage = 0x10
	useChallenge usage = 0x11
	useReply     usage = 0x12
	useRotating  usage = 0x20
	useTicket    usage = 0x30
)

// String names the encrypted structure, for errors.
func (u usage) String() string {
	if name, ok := usageNames[u]; ok {
		return name
	}
	return "ticket"
}

var usageNames = map[usage]string{
	useSecret: "connection secret", useGrant: "ticket grant", useOldTicket: "encrypted ticket", useAuthorize: "authorize",
	useChallenge: "authorizer challenge", useReply: "authorizer reply", useRotating: "rotating secrets",
}

// Ciphers are the kinds of keys that a cluster uses, as its monmap has them since 20.2. The
// zero value is that of an older monmap: all kinds are allowed, and new keys are of kind AES.
type Ciphers struct {
	// Allowed are the kinds with which an entity may log in, rising; nil: all.
	Allowed []Kind `json:"allowed,omitempty"`
	// Service is that of the services' secrets made from now on; 0: the weakest that is allowed.
	Service Kind `json:"service,omitempty"`
	// Preferred is the kind of entities' keys for makers without a choice; 0: likewise.
	Preferred Kind `json:"preferred,omitempty"`
}

// normal fills in the defaults.
func (c Ciphers) normal() (Ciphers, error) {
	if len(c.Allowed) == 0 {
		c.Allowed = []Kind{AES, AES256K}
	}
	weakest := slices.Min(c.Allowed)
	c.Service, c.Preferred = cmp.Or(c.Service, weakest), cmp.Or(c.Preferred, weakest)
	for _, k := range append([]Kind{c.Service, c.Preferred}, c.Allowed...) {
		if k.scheme() == nil {
			return c, fmt.Errorf("%w: %w: %v", errConfig, errKeyType, k)
		}
	}
	return c, nil
}

// xorWords returns the exclusive or of the whole words of p.
func xorWords(p []byte) (x uint64) {
	for ; len(p) >= 8; p = p[8:] {
		x ^= le.Uint64(p)
	}
	return x
}

// NewSigner returns a signer of messages of protocol version 1 (Ceph's CephxSessionHandler.cc)
// with the session key of a service ticket, of which it keeps only a key schedule. It belongs
// to one goroutine, and allocates no memory. second chooses the form: the second one is used if
// both sides have the feature CEPHX_V2; keys of kind AES256K have no other.
func NewSigner(session []byte, second bool) (frame1.Signer, error) {
	kind, err := kindOf(session)
	if err != nil {
		return nil, err
	}
	return kind.scheme().signer(session, second)
}

// putSigned writes the block that the second form signs.
func putSigned(p *[32]byte, m frame1.Signed) {
	for i, v := range [...]uint32{
		m.HeaderCRC, m.FrontCRC, m.FrontLen, m.MiddleCRC, m.MiddleLen, m.DataCRC, m.DataLen, uint32(m.Seq),
	} {
		le.PutUint32(p[4*i:], v)
	}
}

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
