package wire

import (
	"errors"
	"testing"
)

// A structure of no bytes has no fields, for any version and any bytes after it.
// Matrix: HI-04
func TestAnEnvelopeOfNoBytesHasNoFields(t *testing.T) {
	for _, version := range []byte{0, 1, 9} {
		r := NewReader([]byte{version, 1, 0, 0, 0, 0, 5, 6, 7, 8})
		r.Envelope(1, func(_ uint8, r *Reader) { r.U32() })
		if !errors.Is(r.Err(), ErrTruncated) {
			t.Errorf("version %d: %v", version, r.Err())
		}
	}
	// An address of no bytes is an error as well.
	if _, err := DecodeAddr([]byte{1, 1, 1, 0, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
}
