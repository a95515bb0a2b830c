package frame1

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// FuzzStream takes whatever a peer may send apart. What is accepted and has only known
// bits is encoded to the same bytes.
func FuzzStream(f *testing.F) {
	for _, s := range streams(f) {
		f.Add(s.OldFooter, false, []byte(s.Hex))
	}
	p, _ := encoded(Config{Form: Form{OldHeader: true}}, nil, "front", "mid", "data")
	f.Add(false, true, append(AppendAck(p, 3), byte(TagKeepalive), byte(TagClose)))
	f.Fuzz(func(t *testing.T, oldFooter, oldHeader bool, p []byte) {
		cfg := Config{Form: Form{OldFooter: oldFooter, OldHeader: oldHeader}}
		lim := frame.Limits{Front: 1 << 16, Middle: 1 << 16, Data: 1 << 16}
		out, _, err := reencode(NewDecoder(cfg, nil, lim), NewEncoder(cfg, nil, [136]byte{}), p)
		if err != nil && !errors.Is(err, frame.ErrFrame) {
			t.Fatalf("%v is not a frame error", err)
		}
		if err == nil && len(out) != len(p) {
			t.Fatalf("%d bytes, encoded to %d", len(p), len(out))
		}
	})
}

// FuzzMessage encodes any message, and changes a bit of it.
func FuzzMessage(f *testing.F) {
	f.Add(uint8(0), uint32(0), uint64(1), []byte("front"), []byte("middle"), []byte("data"))
	f.Add(uint8(3), uint32(99), uint64(1<<63), []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, form uint8, flip uint32, seq uint64, front, middle, data []byte) {
		cfg := Config{Form: allForms[form%4]}
		h := sample()
		h.Seq = seq
		p := NewEncoder(cfg, sum{}, peerAddr).AppendMessage(nil, &h, front, middle, data)
		d := NewDecoder(cfg, sum{}, frame.DefaultLimits())
		if flip == 0 {
			m, rest, err := decodeMessage(d, p[1:])
			if err != nil || len(rest) != 0 || m.Seq != seq ||
				!bytes.Equal(m.front, front) || !bytes.Equal(m.middle, middle) || !bytes.Equal(m.data, data) {
				t.Fatalf("%+v, %d bytes left, %v", m, len(rest), err)
			}
			return
		}
		bit := 8 + int(flip)%(8*len(p)-8)
		p[bit/8] ^= 1 << (bit % 8)
		_, _, err := decodeMessage(d, p[1:])
		unknownFlag := bit >= 8*len(p)-8 && bit%8 != 0
		if err == nil && !unknownFlag {
			t.Fatalf("bit %d of %d flipped, and accepted", bit, 8*len(p))
		}
	})
}
