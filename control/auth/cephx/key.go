package cephx

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

var le = binary.LittleEndian

const (
	// keyHeadSize is the size of the binary form of a key before the secret (Ceph's Crypto.cc).
	keyHeadSize = 2 + 8 + 2
	redacted    = "[redacted]"
)

// Key is a secret key of some [Kind] with the time of its creation, which is informative.
//
// A Key is a handle: copies share the secret, and [Key.Wipe] of one wipes all. [Key.Clone]
// makes an independent one. The zero Key is no key. Several goroutines may use a Key at once,
// but only one may call Wipe, alone. It prints as "[redacted]".
type Key struct {
	// The secret is behind two pointers: fmt prints unexported fields without asking
	// their methods, and with a verb that does not fit it even follows one pointer.
	p **keyData
}

type keyData struct {
	kind      Kind
	secret    []byte
	sec, nsec uint32
	wiped     bool
}

func newHandle(d *keyData) Key { return Key{&d} }

// data is only called if there is a key.
func (k Key) data() *keyData { return *k.p }

// scheme returns the functions of the key. It fails without a key, and for a key of an unknown
// kind, which only a [Keyring] holds.
func (k Key) scheme() (scheme, error) {
	if k.IsZero() {
		return nil, errNoKey
	}
	s := k.kind().scheme()
	if s == nil {
		return nil, fmt.Errorf("%w: %v", errKeyType, k.kind())
	}
	return s, nil
}

// NewKey makes a random key of a known kind from r, or from [crypto/rand] if r is nil.
func NewKey(kind Kind, r io.Reader, created time.Time) (Key, error) {
	s := kind.scheme()
	if s == nil {
		return Key{}, fmt.Errorf("%w: %v", errKeyType, kind)
	}
	d := &keyData{kind: kind, secret: make([]byte, s.size())}
	d.sec, d.nsec = utime(created)
	if err := random(r, d.secret); err != nil {
		return Key{}, err
	}
	return newHandle(d), nil
}

// kindOf is the kind of a bare secret. Its length tells: 16 bytes or 32.
func kindOf(secret []byte) (Kind, error) {
	for _, kind := range []Kind{AES, AES256K} {
		if len(secret) == kind.scheme().size() {
			return kind, nil
		}
	}
	return 0, fmt.Errorf("%w: %d bytes of secret", errKeyType, len(secret))
}

// ParseKey parses the base64 form of a key, as keyring files hold it.
func ParseKey(s string) (Key, error) { return parseKey(s, readKey) }

func parseKey(s string, read func(*wire.Reader) Key) (Key, error) {
	p, err := base64.StdEncoding.DecodeString(s)
	defer clear(p) // with an error it is the part before
	if err != nil {
		// The error of the package quotes no input, but offsets do not help either.
		return Key{}, malformed("key is not base64")
	}
	return decodeKey(p, read)
}

// decodeKey decodes the binary form of a key (Ceph's Crypto.cc) by a function that reads it.
func decodeKey(p []byte, read func(*wire.Reader) Key) (Key, error) {
	r := wire.NewReader(p)
	k := read(r)
	if err := r.Err(); err != nil {
		return Key{}, fmt.Errorf("key: %w", err)
	}
	if r.Len() != 0 {
		k.Wipe()
		return Key{}, malformed("bytes after the key")
	}
	return k, nil
}

func readKey(r *wire.Reader) Key {
	k := readAnyKey(r)
	if _, err := k.scheme(); err != nil {
		k.Wipe()
		r.Fail(err)
		return Key{}
	}
	return k
}

// readAnyKey takes keys of unknown kinds as well.
func readAnyKey(r *wire.Reader) Key {
	d := &keyData{kind: Kind(r.U16()), sec: r.U32(), nsec: r.U32()}
	secret := r.Bytes(int(r.U16()))
	if s := d.kind.scheme(); r.Err() == nil && s != nil && len(secret) != s.size() {
		r.Fail(fmt.Errorf("%w: %v with %d bytes", errKeyType, d.kind, len(secret)))
	}
	if r.Err() != nil {
		return Key{}
	}
	d.secret = bytes.Clone(secret)
	return newHandle(d)
}

// appendTo appends the binary form, 12 bytes and the secret. The zero Key is written with
// type 0 and no bytes.
func (k Key) appendTo(dst []byte) []byte {
	if k.IsZero() {
		return append(dst, make([]byte, keyHeadSize)...)
	}
	dst = le.AppendUint16(dst, uint16(k.data().kind))
	dst = le.AppendUint32(dst, k.data().sec)
	dst = le.AppendUint32(dst, k.data().nsec)
	dst = le.AppendUint16(dst, uint16(len(k.data().secret)))
	return append(dst, k.data().secret...)
}

// base64 returns the form of keyring files. It contains the secret.
func (k Key) base64() string {
	p := k.appendTo(make([]byte, 0, 64))
	defer clear(p)
	return base64.StdEncoding.EncodeToString(p)
}

// kind returns the kind of the key, 0 if there is no key.
func (k Key) kind() Kind {
	if k.IsZero() {
		return 0
	}
	return k.data().kind
}

// Secret returns a copy of the secret bytes, or nil if there is no key. The caller wipes
// it.
func (k Key) Secret() []byte {
	if k.IsZero() {
		return nil
	}
	return bytes.Clone(k.data().secret)
}

// IsZero reports whether there is no key, or it was wiped.
func (k Key) IsZero() bool { return k.p == nil || k.data().wiped }

// Clone returns an independent copy.
func (k Key) Clone() Key {
	if k.IsZero() {
		return Key{}
	}
	d := *k.data()
	d.secret = bytes.Clone(d.secret)
	return newHandle(&d)
}

// Wipe overwrites the secret, for all copies of the handle.
func (k Key) Wipe() {
	if k.p != nil {
		clear(k.data().secret)
		*k.data() = keyData{wiped: true}
	}
}

// String returns "[redacted]", or "[no key]".
func (k Key) String() string {
	if k.IsZero() {
		return "[no key]"
	}
	return redacted
}

// Format writes String for all verbs.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// random fills p from r, or from crypto/rand if r is nil.
func random(r io.Reader, p []byte) error {
	if r == nil {
		r = rand.Reader
	}
	if _, err := io.ReadFull(r, p); err != nil {
		return fmt.Errorf("random source: %w", err)
	}
	return nil
}

func randomU64(r io.Reader) (uint64, error) {
	var p [8]byte
	err := random(r, p[:])
	return le.Uint64(p[:]), err
}

// utime splits t into the two fields of the wire; the zero time is zero.
func utime(t time.Time) (sec, nsec uint32) {
	if t.IsZero() {
		return 0, 0
	}
	return uint32(t.Unix()), uint32(t.Nanosecond())
}
