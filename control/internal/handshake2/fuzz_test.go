package handshake2

import (
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// FuzzPeer lets a peer behave well for some frames and then send anything: raw bytes, or
// a well-formed frame with any tag and payload.
// Matrix: HI-23, HI-24, HI-25
func FuzzPeer(f *testing.F) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	wanting(&cc, &ac)
	sides := roles(f, cc, ac)
	for i, side := range sides {
		for stage, p := range pieces(f, side.peer) {
			f.Add(i == 0, uint8(stage), uint8(p.tag), p.payload)
			f.Add(i == 0, uint8(stage), uint8(0), p.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, connector bool, stage, tag uint8, data []byte) {
		side := sides[1]
		if connector {
			side = sides[0]
		}
		list := pieces(t, side.peer)
		peer := join(list[:int(stage)%len(list)])
		if tag == 0 {
			peer = append(peer, data...)
		} else {
			peer = append(peer, encode(t, frame.Tag(tag), data)...)
		}
		// Whatever the peer sends, it then hangs up, so only a complete handshake succeeds.
		if err := side.hears(peer); err != nil {
			wantError(t, err)
		} else if int(stage)%len(list) < len(list)-2 && tag != 0 {
			t.Fatal("a handshake with frames missing was accepted")
		}
	})
}
