package handshake2

import (
	"bytes"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// FuzzPeer lets a peer behave well for some frames and then send anything: raw bytes, or
// a well-formed frame with any tag and payload.
// Matrix: HI-23, HI-24, HI-25
func FuzzPeer(f *testing.F) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	wanting(&cc, &ac)
	c2s, s2c := capture(f, cc, ac)
	toConnector, toAcceptor := pieces(f, s2c), pieces(f, c2s)
	for i := range toConnector {
		f.Add(true, uint8(i), uint8(toConnector[i].tag), toConnector[i].payload)
		f.Add(true, uint8(i), uint8(0), toConnector[i].bytes)
	}
	for i := range toAcceptor {
		f.Add(false, uint8(i), uint8(toAcceptor[i].tag), toAcceptor[i].payload)
		f.Add(false, uint8(i), uint8(0), toAcceptor[i].bytes)
	}
	f.Fuzz(func(t *testing.T, connector bool, stage, tag uint8, data []byte) {
		list := toAcceptor
		if connector {
			list = toConnector
		}
		peer := join(list[:int(stage)%len(list)])
		if tag == 0 {
			peer = append(peer, data...)
		} else {
			peer = append(peer, encode(t, frame.Tag(tag), data)...)
		}
		// Whatever the peer sends, it then hangs up, so only a complete handshake succeeds.
		link := linktest.Scripted(bytes.Clone(peer))
		var err error
		if connector {
			_, _, err = Connect(t.Context(), link, cc)
		} else {
			_, _, err = Accept(t.Context(), link, ac)
		}
		if err != nil {
			wantError(t, err)
		} else if int(stage)%len(list) < len(list)-2 && tag != 0 {
			t.Fatal("a handshake with frames missing was accepted")
		}
	})
}
