package handshake2

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Matrix: HI-07
func TestEverythingBeforeAuthenticationIsBounded(t *testing.T) {
	// One frame: beyond the limit it is refused before it is read.
	_, ac := keyedConfigs(keyed{}, newKeyed(auth.CRC))
	huge := wire2.AuthRequest{Method: 2, PreferredModes: []uint32{1}, Payload: make([]byte, frame.PreAuthLimits().Control)}
	link := linktest.Scripted(answer(t, frame.TagAuthRequest, huge.AppendTo(nil)))
	before := len(link.In.Content())
	if _, _, err := Accept(t.Context(), link, ac); !errors.Is(err, frame.ErrTooLarge) {
		t.Error(err)
	}
	if read := before - len(link.In.Content()); read > 1000 {
		t.Errorf("read %d bytes", read)
	}
	// All frames together.
	client, server := newKeyed(auth.CRC), newKeyed(auth.CRC)
	client.retries, server.refuse = 1000, &auth.Refused{Errno: auth.EPERM}
	_, ac = keyedConfigs(client, server)
	large := wire2.AuthRequest{Method: 2, PreferredModes: []uint32{1}, Payload: make([]byte, 60<<10)}.AppendTo(nil)
	peer := answer(t, frame.TagAuthRequest, large)
	for range maxAuthRequests {
		peer = append(peer, encode(t, frame.TagAuthRequest, large)...)
	}
	if _, _, err := Accept(t.Context(), linktest.Scripted(peer), ac); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
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

// Matrix: AU-15
func TestSecretsAreWipedOnSuccessAndOnFailure(t *testing.T) {
	for _, rightKey := range []bool{true, false} {
		client := newKeyed(auth.Secure)
		if !rightKey {
			client.key = 8
		}
		spy := &spyClient{keyedClient: keyedClient{client}}
		cc, ac := keyedConfigs(client, newKeyed(auth.Secure))
		cc.Auth = spy
		meet(t, cc, ac)
		if len(spy.key) == 0 || !bytes.Equal(spy.key, make([]byte, len(spy.key))) || !bytes.Equal(spy.secret, make([]byte, len(spy.secret))) {
			t.Errorf("right key %v: left %x %x", rightKey, spy.key, spy.secret)
		}
		if client.wiped.Load() != 1 {
			t.Errorf("exchange wiped %d times", client.wiped.Load())
		}
	}
	// Also when the authentication itself fails half way.
	_, ac := noneConfigs()
	ac.Auth = none.NewServer(none.ServerConfig{})
	client := newKeyed(auth.Secure)
	cc, _ := keyedConfigs(client, keyed{})
	cc.PeerType = 0
	meet(t, cc, ac)
	if client.wiped.Load() != 1 {
		t.Errorf("exchange wiped %d times", client.wiped.Load())
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
