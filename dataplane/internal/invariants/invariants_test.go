package invariants

import (
	"bytes"
	"testing"
)

func TestPoisonFillsAllOfAReleasedBufferAndNothingElse(t *testing.T) {
	for n := range 70 {
		p := make([]byte, 80)
		Poison(p[:n])
		want := make([]byte, 80)
		if Enabled {
			copy(want, bytes.Repeat([]byte{PoisonByte}, n))
		}
		if !bytes.Equal(p, want) {
			t.Errorf("%d bytes: %x", n, p)
		}
	}
}
