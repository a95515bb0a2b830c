package frame

import (
	"bytes"
	"errors"
	"testing"
)

// A preamble that is the same as the last one is taken without a second look.
// What was set meanwhile counts all the same.
func TestAPreambleThatComesAgainIsHeldToTheLimitsOfNow(t *testing.T) {
	for _, rev := range []Revision{Rev0, Rev1} {
		e := NewEncoder(rev)
		wire, err := e.AppendFrame(nil, TagMessage, pattern(41, 1), pattern(3000, 2))
		must(t, err)
		head := wire[:PreambleSize]
		d := NewDecoder(rev, DefaultLimits())
		for range 3 {
			if _, _, err := decode(d, bytes.Clone(wire), false); err != nil {
				t.Fatal(err)
			}
		}
		d.SetLimits(Limits{Control: 100, Front: 100})
		if _, err := d.Open(head); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: beyond the new limit: %v", rev, err)
		}
		d.SetLimits(DefaultLimits())

		packer := NewEncoder(rev)
		packer.Compress(&runLength{}, 1)
		packed, err := packer.AppendFrame(nil, TagMessage, bytes.Repeat([]byte{1}, 41), make([]byte, 3000))
		must(t, err)
		d.Decompress(&runLength{})
		if _, _, err := decode(d, bytes.Clone(packed), false); err != nil {
			t.Fatal(err)
		}
		d.Decompress(nil)
		if _, err := d.Open(packed[:PreambleSize]); !errors.Is(err, errCompressed) {
			t.Errorf("%v: compressed without compression: %v", rev, err)
		}

		if _, err := d.Open(head); err != nil {
			t.Fatal(err)
		}
		for i := range head {
			bad := bytes.Clone(head)
			bad[i] ^= 0x40
			if _, err := d.Open(bad); err == nil {
				t.Errorf("%v: byte %d may change", rev, i)
			}
		}
		must(t, d.Secure(testKey, testNonce))
		clear := make([]byte, d.HeadSize())
		copy(clear, head)
		if h, err := d.Open(clear); err == nil && h.Tag == TagMessage {
			t.Errorf("%v: a preamble in clear passes in secure mode", rev)
		}
	}
}
