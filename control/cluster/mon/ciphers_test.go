package mon

import (
	"encoding/hex"
	"reflect"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
)

// A monmap of 20.2.4 in a cluster that allows both kinds of keys: behind everything else it
// has what it allows. A map without that is one of before.
func TestAMonmapSaysWhichKindsOfKeysAreAllowed(t *testing.T) {
	const captured = "0a06e30000000c318580ef4e4802a560cbba90e03f880100000079f7046b48884e1e79f7046b48884e1e010108000000ff0f00800100000001010800" +
		"00000000000000000000010000000100000061060160000000010000006102020000000101011c000000020000000000000010000000020055f07f00" +
		"000100000000000000000101011c000000010000000000000010000000020055f17f0000010000000000000000000000000000000079f7046bfbc44e" +
		"1e01000000010000006114000000000100000000000000000000000000000000000200000002000000010000000200000002000000"
	p, err := hex.DecodeString(captured)
	check(t, err)
	m, err := decodeMonMap(p)
	check(t, err)
	want := cephx.Ciphers{Allowed: []cephx.Kind{cephx.AES, cephx.AES256K}, Service: cephx.AES256K, Preferred: cephx.AES256K}
	if !reflect.DeepEqual(m.Ciphers, want) || m.AuthEpoch != 0 || len(m.Mons) != 1 {
		t.Errorf("%+v", m)
	}
	m.AuthEpoch = 7
	ours := m.AppendTo(nil)
	tail := append([]byte{7}, p[len(p)-23:]...) // the epoch, and what stands behind it
	if again, err := decodeMonMap(ours); err != nil || !reflect.DeepEqual(again, m) || !slices.Equal(ours[len(ours)-24:], tail) {
		t.Errorf("%+v, %v; the end is %x, want %x", again, err, ours[len(ours)-24:], tail)
	}
	for cut := range ours {
		if _, err := decodeMonMap(ours[:cut]); err == nil {
			t.Fatalf("%d of %d bytes decode", cut, len(ours))
		}
	}
	m.AuthEpoch, m.Ciphers = 0, cephx.Ciphers{}
	if again, err := decodeMonMap(m.AppendTo(nil)); err != nil || !reflect.DeepEqual(again, m) {
		t.Errorf("without ciphers: %+v, %v", again, err)
	}
}
