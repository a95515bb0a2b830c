package frame

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// mode is one of the four framings.
type mode struct {
	name   string
	rev    Revision
	secure bool
}

var modes = []mode{
	{"rev0 crc", Rev0, false},
	{"rev0 secure", Rev0, true},
	{"rev1 crc", Rev1, false},
	{"rev1 secure", Rev1, true},
}

var (
	testKey   = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	testNonce = [12]byte{0xFE, 0xFF, 0xFF, 0xFF, 0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
)

func (m mode) encoder(t testing.TB) *Encoder {
	t.Helper()
	e := NewEncoder(m.rev)
	if m.secure {
		must(t, e.Secure(testKey, testNonce))
	}
	return e
}

func (m mode) decoder(t testing.TB) *Decoder {
	t.Helper()
	d := looseDecoder(m.rev, DefaultLimits())
	if m.secure {
		must(t, d.Secure(testKey, testNonce))
	}
	return d
}

// looseDecoder takes segments of any length under any tag. The tests of the
// framing itself use it; those of what a tag can hold use NewDecoder.
func looseDecoder(rev Revision, lim Limits) *Decoder {
	d := NewDecoder(rev, lim)
	d.bounds = &anything
	return d
}

var anything = func() (t boundTable) {
	for tag := range t {
		t[tag] = Bound{Segments: MaxSegments, Max: math.MaxUint32}
	}
	return t
}()

// strict is the decoder that everybody else gets.
func (m mode) strict(t testing.TB) *Decoder {
	t.Helper()
	d := m.decoder(t)
	d.bounds = NewDecoder(m.rev, Limits{}).bounds
	return d
}

// crypt is the state of the reference codec, nil in crc mode.
func (m mode) crypt() *refCrypt {
	if !m.secure {
		return nil
	}
	return &refCrypt{rev: m.rev, key: bytes.Clone(testKey[:]), nonce: bytes.Clone(testNonce[:])}
}

func forModes(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}

// decode takes the first frame off a copy of b, with head and rest in one
// buffer or in two, and returns the number of bytes taken.
func decode(d *Decoder, b []byte, apart bool) (Frame, int, error) {
	b = bytes.Clone(b)
	n := d.HeadSize()
	if len(b) < n {
		return Frame{}, 0, errShort
	}
	head := b[:n]
	h, err := d.Open(head)
	if err != nil {
		return Frame{}, 0, err
	}
	size := d.RestSize(h)
	if len(b)-n < size {
		return Frame{}, 0, errShort
	}
	rest := b[n : n+size]
	if apart {
		rest = bytes.Clone(rest)
		head = bytes.Clone(head)
	}
	f, err := d.Finish(h, head, rest)
	return f, n + size, err
}

// decodeErr is the error of decode for a frame in one buffer.
func decodeErr(d *Decoder, b []byte) error {
	_, _, err := decode(d, b, false)
	return err
}

var errShort = errors.New("stream ends inside a frame")

func equalSegs(a, b [4][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)*7 + byte(i>>8) + seed
	}
	return p
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
	if !errors.Is(err, ErrFrame) {
		t.Fatalf("error %v does not wrap ErrFrame", err)
	}
}

// errOf is the error of a call that returns a value, too.
func errOf(_ any, err error) error { return err }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
