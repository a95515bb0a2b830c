package frame1

import (
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
