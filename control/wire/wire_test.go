package wire

import (
	"errors"
	"strings"
	"testing"
)

func decodeAddrVec(p []byte) (AddrVec, error) {
	r := NewReader(p)
	v := r.AddrVec()
	return v, r.Err()
}

func decodeEntityName(p []byte) (EntityName, error) {
	r := NewReader(p)
	n := r.EntityName()
	return n, r.Err()
}

func TestReaderFailureIsSticky(t *testing.T) {
	r := NewReader([]byte{1, 2, 3})
	r.U32()
	first := r.Err()
	if !errors.Is(first, ErrTruncated) {
		t.Fatal(first)
	}
	if r.U8() != 0 || r.Bytes(1) != nil || r.Len() != 0 || r.Str() != "" || r.U32s() != nil {
		t.Error("a failed reader gave out data")
	}
	r.Fail(errors.New("later"))
	if r.Err() != first {
		t.Errorf("error was replaced: %v", r.Err())
	}
	if r := NewReader(nil); r.Bytes(-1) != nil || r.Err() == nil {
		t.Error("negative length accepted")
	}
}

// Matrix: HI-06
func TestReaderSlicesCannotGrowIntoTheInput(t *testing.T) {
	buf := []byte{1, 2, 3, 4}
	p := NewReader(buf).Bytes(2)
	_ = append(p, 9)
	if buf[2] != 3 {
		t.Error("append to a returned slice overwrote the input")
	}
}

// Matrix: HI-04
func TestEnvelope(t *testing.T) {
	encode := func(version, compat uint8, body ...byte) []byte {
		p, mark := BeginEnvelope(nil, version, compat)
		return append(EndEnvelope(append(p, body...), mark), 0xEE)
	}
	t.Run("newer writer, unknown tail skipped", func(t *testing.T) {
		r := NewReader(encode(9, 1, 5, 6, 7, 8))
		r.Envelope(1, func(v uint8, r *Reader) {
			if got := r.U8(); v != 9 || got != 5 {
				t.Errorf("version %d, value %d", v, got)
			}
		})
		if got := r.U8(); got != 0xEE || r.Err() != nil {
			t.Errorf("behind the envelope: %x, %v", got, r.Err())
		}
	})
	for _, c := range []struct {
		name string
		p    []byte
		read bool // the body is
		want error
	}{
		{"reader too old", encode(9, 2, 5), false, ErrVersion},
		{"body shorter than its fields", encode(1, 1, 5), true, ErrTruncated},
		{"longer than the input", []byte{1, 1, 9, 0, 0, 0, 1}, false, ErrTruncated},
		// A structure of no bytes has no fields, for any version and any bytes after it.
		{"no bytes, version 0", []byte{0, 1, 0, 0, 0, 0, 5, 6, 7, 8}, true, ErrTruncated},
		{"no bytes, version 1", []byte{1, 1, 0, 0, 0, 0, 5, 6, 7, 8}, true, ErrTruncated},
		{"no bytes, version 9", []byte{9, 1, 0, 0, 0, 0, 5, 6, 7, 8}, true, ErrTruncated},
	} {
		r, read := NewReader(c.p), false
		r.Envelope(1, func(_ uint8, r *Reader) { read = true; r.U32() })
		if !errors.Is(r.Err(), c.want) || read != c.read {
			t.Errorf("%s: %v, body read %v", c.name, r.Err(), read)
		}
	}
	// An address of no bytes is an error as well.
	if _, err := DecodeAddr([]byte{1, 1, 1, 0, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
}

func TestFeatureMasks(t *testing.T) {
	two := FeatureServerJewel | FeatureMsgAddr2
	if FeatureServerJewel.Has(two) || !FeaturesPacific.Has(two) {
		t.Error("a set has a mask if it has each of its bits")
	}
	if got := Features(0b0110).Missing(0b1100); got != 0b1000 {
		t.Errorf("missing %b", got)
	}
}

func TestEntityNames(t *testing.T) {
	for _, n := range []EntityName{{Client, "admin"}, {Mon, "a"}, {OSD, "0"}, {Client, "rgw.zone.host"}} {
		text, _ := n.MarshalText()
		var back EntityName
		if err := back.UnmarshalText(text); err != nil || back != n {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	if got := string(EntityName{Client, "admin"}.AppendTo(nil)); got != "\x08\x00\x00\x00\x05\x00\x00\x00admin" {
		t.Errorf("got %x", got)
	}
	for _, s := range []string{"", "client", "client.", "nobody.x", ".x"} {
		if _, err := ParseEntityName(s); !errors.Is(err, errSyntax) {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := decodeEntityName([]byte("\x08\x01\x00\x00\x05\x00\x00\x00admin")); !errors.Is(err, ErrMalformed) {
		t.Errorf("type beyond a byte: %v", err)
	}
	for n, want := range map[int]error{maxIDLen: nil, maxIDLen + 1: ErrMalformed} {
		p := EntityName{Client, strings.Repeat("x", n)}.AppendTo(nil)
		if got, err := decodeEntityName(p); !errors.Is(err, want) || err == nil && len(got.ID) != n {
			t.Errorf("id of %d bytes: %v", n, err)
		}
	}
	if got := EntityType(0x40).String(); got != "type(0x40)" {
		t.Error(got)
	}
}

func TestACompressionIsReadByTheNameThatItPrints(t *testing.T) {
	for _, m := range []CompressionMethod{CompressionNone, CompressionSnappy, CompressionZlib, CompressionZstd, CompressionLZ4} {
		if got, err := ParseCompression(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	for _, name := range []string{"", "brotli", "ZSTD"} {
		if m, err := ParseCompression(name); err == nil {
			t.Errorf("%q: %v", name, m)
		}
	}
	if got := CompressionMethod(77).String(); got != "compression(77)" {
		t.Error(got)
	}
}
