package handshake2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Matrix: HI-07
func TestEverythingBeforeAuthenticationIsBounded(t *testing.T) {
	// One frame: beyond the limit it is refused before it is read.
	_, ac := keyedConfigs(keyed{}, newKeyed(auth.CRC))
	link := linktest.Scripted(answer(t, frame.TagAuthRequest, authRequest(int(frame.PreAuthLimits().Control))))
	before := len(link.In.Content())
	if _, _, err := Accept(t.Context(), link, ac); !errors.Is(err, frame.ErrTooLarge) {
		t.Error(err)
	}
	if read := before - len(link.In.Content()); read > 1000 {
		t.Errorf("read %d bytes", read)
	}
	// A list of modes: the refusal names those that count.
	_, ac = keyedConfigs(keyed{}, newKeyed(auth.CRC))
	modes := wire2.AuthRequest{Method: 2, PreferredModes: make([]uint32, 10_000)}.AppendTo(nil)
	if _, _, err := Accept(t.Context(), linktest.Scripted(answer(t, frame.TagAuthRequest, modes)), ac); !errors.Is(err, auth.ErrNoMode) || len(err.Error()) > 1000 {
		t.Errorf("%.2000v", err)
	}
	// All frames together.
	ac = refusing()
	if _, _, err := Accept(t.Context(), linktest.Scripted(asking(t, 1+maxAuthRequests, authRequest(60<<10))), ac); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
}

// authRequest is the payload of an AUTH_REQUEST of so many bytes for the method.
func authRequest(n int) []byte {
	return wire2.AuthRequest{Method: 2, PreferredModes: []uint32{1}, Payload: make([]byte, n)}.AppendTo(nil)
}

// asking is a peer that sends an AUTH_REQUEST n times.
func asking(t *testing.T, n int, request []byte) []byte {
	t.Helper()
	return append(answer(t, frame.TagAuthRequest, request), bytes.Repeat(encode(t, frame.TagAuthRequest, request), n-1)...)
}

// refusing is an OSD that refuses everybody.
func refusing() AcceptConfig {
	server := newKeyed(auth.CRC)
	server.refuse = &auth.Refused{Errno: auth.EPERM}
	_, ac := keyedConfigs(keyed{}, server)
	return ac
}

func TestAbortedFrameIsPassedOver(t *testing.T) {
	// Revision 0 can abort any frame; byte 0 of its epilogue says so and is not covered by
	// a checksum.
	cc, ac := noneConfigs()
	cc.Rev0Only = true
	c2s, _ := capture(t, cc, ac)
	hello := wire2.Hello{EntityType: wire.Client, PeerAddr: target}
	f, err := frame.NewEncoder(frame.Rev0).AppendFrame(nil, frame.TagHello, hello.AppendTo(nil))
	must(t, err)
	f[len(f)-17] = 1
	peer := slices.Concat(c2s[:wire2.BannerSize], f, c2s[wire2.BannerSize:])
	if _, _, err := Accept(t.Context(), linktest.Scripted(peer), ac); err != nil {
		t.Error(err)
	}
}

// The limits before authentication refuse no control frame that its tag can hold.
func TestEveryControlFrameAtItsBoundIsRead(t *testing.T) {
	for _, rev := range []frame.Revision{frame.Rev0, frame.Rev1} {
		for tag := frame.TagHello; tag.Known(); tag++ {
			wire, err := frame.NewEncoder(rev).AppendFrame(nil, tag, make([]byte, tag.Bound().Max))
			must(t, err)
			s := newStream(linktest.Scripted(wire))
			s.start(rev)
			if got, p, err := s.ReadFrame(t.Context()); err != nil || got != tag || len(p) != int(tag.Bound().Max) {
				t.Errorf("%v, %v: %v of %d bytes, %v", rev, tag, got, len(p), err)
			}
		}
	}
}

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
	link := linktest.Scripted(answer(t, frame.TagAuthRequest, authRequest(payload)))
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
	ac, large := refusing(), authRequest(20<<10)
	peer := asking(t, 4, large)
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

// The link stays open and brings nothing more: whoever waited for more than the first
// wrong byte would wait for ever.
// Matrix: HS-01
func TestWhatIsNoBannerIsToldWithItsFirstWrongByte(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cc, ac := noneConfigs()
	own := wire2.Banner{Supported: wire.BannerRevision1}.AppendTo(nil)
	list := []string{"ceph v0", "G"}
	for i := range "ceph v2\n" {
		list = append(list, "ceph v2\n"[:i]+"\xff")
	}
	for _, said := range list {
		for _, side := range roles(t, cc, ac) {
			for _, more := range []string{"", "more of it"} {
				link := &end{In: linktest.NewPipe([]byte(said + more)...), Out: linktest.NewPipe()}
				err := side.run(ctx, link)
				e, ok := errors.AsType[*wire2.BannerError](err)
				if !ok || string(e.Got) != said || wantError(t, err).Stage != handshake.StageBanner || !bytes.Equal(link.Out.Content(), own) {
					t.Errorf("%s, %q: %v", side.name, said, err)
				}
				if left := string(link.In.Content()); left != more {
					t.Errorf("%s, %q: %q is left", side.name, said, left)
				}
			}
		}
	}
}

// end is one end of a connection in memory.
type end = linktest.End

// outcome is what a side has in the end.
type outcome struct {
	stream *Stream
	peer   *handshake.Peer
	err    error
}

// meet runs the two sides of one handshake to their ends.
func meet(t testing.TB, cc ConnectConfig, ac AcceptConfig) (connector, acceptor outcome) {
	t.Helper()
	c, s := linktest.New()
	return both(t, t.Context(), c, s, cc, ac)
}

// both is meet over a connection of the test's.
func both(t testing.TB, ctx context.Context, c, s *end, cc ConnectConfig, ac AcceptConfig) (connector, acceptor outcome) {
	t.Helper()
	done := make(chan outcome)
	go func() {
		var o outcome
		o.stream, o.peer, o.err = Accept(ctx, s, ac)
		if o.err != nil {
			s.Out.Close()
		}
		done <- o
	}()
	connector.stream, connector.peer, connector.err = Connect(ctx, c, cc)
	if connector.err != nil {
		c.Out.Close()
	}
	acceptor = <-done
	for _, o := range []outcome{connector, acceptor} {
		if o.err != nil {
			wantError(t, o.err)
		}
	}
	return connector, acceptor
}

// wantError checks what holds for every error of the package.
func wantError(t testing.TB, err error) *handshake.Error {
	t.Helper()
	var e *handshake.Error
	if !errors.As(err, &e) || e.Stage == "" || e.State == "" || e.Err == nil {
		t.Fatalf("not a complete *Error: %#v", err)
	}
	return e
}

var must = drivertest.Must
