package handshake2

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// roomOf lets a handshake keep so many bytes, and counts them.
func roomOf(ac *AcceptConfig, most int) (kept *int) {
	kept = new(int)
	ac.Room = func(n int) error {
		if *kept+n > most {
			return fmt.Errorf("%w: test", handshake.ErrNoRoom)
		}
		*kept += n
		return nil
	}
	return kept
}

// Room is asked before a frame is read, so that one for which there is none costs
// its preamble.
// Matrix: HI-07
func TestAFrameWithoutRoomIsRefusedFromItsPreamble(t *testing.T) {
	const payload = 60 << 10
	_, ac := keyedConfigs(keyed{}, newKeyed(auth.CRC))
	kept := roomOf(&ac, 4<<10)
	large := wire2.AuthRequest{Method: 2, PreferredModes: []uint32{1}, Payload: make([]byte, payload)}
	link := linktest.Scripted(answer(t, frame.TagAuthRequest, large.AppendTo(nil)))
	if _, _, err := Accept(t.Context(), link, ac); !errors.Is(err, handshake.ErrNoRoom) || errors.Is(err, handshake.ErrAuth) {
		t.Error(err)
	}
	if left := len(link.In.Content()); left < payload {
		t.Errorf("only %d bytes are left unread", left)
	}
	if *kept > 1<<10 {
		t.Errorf("%d bytes kept for a frame that was refused", *kept)
	}
}

// What is asked for is all that the stream keeps: the frame, and both directions of
// the transcript.
// Matrix: HI-07
func TestRoomIsAskedForAllThatAHandshakeKeeps(t *testing.T) {
	client, server := newKeyed(auth.CRC), newKeyed(auth.CRC)
	client.retries, server.refuse = 1000, &auth.Refused{Errno: auth.EPERM}
	_, ac := keyedConfigs(client, server)
	large := wire2.AuthRequest{Method: 2, PreferredModes: []uint32{1}, Payload: make([]byte, 20<<10)}.AppendTo(nil)
	peer := answer(t, frame.TagAuthRequest, large)
	for range 3 {
		peer = append(peer, encode(t, frame.TagAuthRequest, large)...)
	}
	kept := roomOf(&ac, 1<<30)
	if _, _, err := Accept(t.Context(), linktest.Scripted(peer), ac); err == nil {
		t.Fatal("accepted")
	}
	if least := len(peer) + len(large); *kept < least || *kept > least+4<<10 {
		t.Errorf("asked for %d bytes, and kept %d", *kept, least)
	}
	// A handshake as real ones are needs little.
	cc, ac := keyedConfigs(newKeyed(auth.Secure), newKeyed(auth.Secure))
	kept = roomOf(&ac, 4<<10)
	if x, y := meet(t, cc, ac); x.err != nil || y.err != nil || *kept == 0 {
		t.Errorf("%v, %v, %d bytes", x.err, y.err, *kept)
	}
}
