package cephx

import (
	"fmt"

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
	switch u {
	case useSecret:
		return "connection secret"
	case useGrant:
		return "ticket grant"
	case useOldTicket:
		return "encrypted ticket"
	case useAuthorize:
		return "authorize"
	case useChallenge:
		return "authorizer challenge"
	case useReply:
		return "authorizer reply"
	case useRotating:
		return "rotating secrets"
	}
	return "ticket"
}

// Ciphers are the kinds of keys that a cluster uses, as its monmap has them since 20.2. The
// zero value is that of an older monmap: all kinds are allowed, and new keys are of kind AES.
type Ciphers struct {
	// Allowed are the kinds with which an entity may log in, rising; nil: all.
	Allowed []Kind `json:"allowed,omitempty"`
	// Service is that of the services' secrets made from now on.
	Service Kind `json:"service,omitempty"`
	// Preferred is the kind of entities' keys for makers without a choice.
	Preferred Kind `json:"preferred,omitempty"`
}

// normal fills in the defaults.
func (c Ciphers) normal() (Ciphers, error) {
	if len(c.Allowed) == 0 {
		c.Allowed = []Kind{AES, AES256K}
	}
	if c.Service == 0 {
		c.Service = AES
	}
	if c.Preferred == 0 {
		c.Preferred = AES
	}
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
func NewSigner(session Key, second bool) (frame1.Signer, error) {
	s, err := session.scheme()
	if err != nil {
		return nil, err
	}
	return s.signer(session.data().secret, second)
}

// putSigned writes the block that the second form signs.
func putSigned(p *[32]byte, m frame1.Signed) {
	for i, v := range [...]uint32{
		m.HeaderCRC, m.FrontCRC, m.FrontLen, m.MiddleCRC, m.MiddleLen, m.DataCRC, m.DataLen, uint32(m.Seq),
	} {
		le.PutUint32(p[4*i:], v)
	}
}
