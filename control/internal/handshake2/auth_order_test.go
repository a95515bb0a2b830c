package handshake2

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

var errLast = errors.New("the last step failed")

// An error of the call that ends the authentication ends the handshake
// there, whatever else that call returned: nothing is signed, encrypted or sent with
// keys of which only some are there, and they are wiped.
// Matrix: AU-18
func TestAnErrorOfTheLastCallStopsEverything(t *testing.T) {
	for _, mode := range bothMode {
		client, seen := newKeyed(mode), &recorder{}
		client.doneErr = errLast
		cc, ac := keyedConfigs(client, newKeyed(mode))
		cc.Probe = probed(seen)
		x, y := meet(t, cc, ac)
		if !errors.Is(x.err, errLast) || !errors.Is(x.err, handshake.ErrAuth) || !errors.Is(y.err, io.EOF) {
			t.Errorf("%v: connector %v, acceptor %v", mode, x.err, y.err)
		}
		wantNothingAfter(t, seen, "after read AUTH_DONE")
		server, seen := newKeyed(mode), &recorder{}
		server.doneErr = errLast
		cc, ac = keyedConfigs(newKeyed(mode), server)
		ac.Probe = probed(seen)
		x, y = meet(t, cc, ac)
		if !errors.Is(y.err, errLast) || !errors.Is(y.err, handshake.ErrAuth) || !errors.Is(x.err, &auth.Refused{}) {
			t.Errorf("%v: connector %v, acceptor %v", mode, x.err, y.err)
		}
		// It may tell the peer, and hear that it leaves.
		wantNothingAfter(t, seen, "after write AUTH_BAD_METHOD")
		if !client.gave.isWiped() || !server.gave.isWiped() {
			t.Errorf("%v: a key is kept: %x, %x", mode, client.gave.key, server.gave.key)
		}
	}
}

func wantNothingAfter(t *testing.T, seen *recorder, last string) {
	t.Helper()
	if n := len(seen.points); n == 0 || seen.points[n-1] != last {
		t.Errorf("went on after %q: %q", last, seen.points)
	}
	if slices.ContainsFunc(seen.points, func(p string) bool { return strings.Contains(p, "SIGNATURE") }) {
		t.Errorf("signed: %q", seen.points)
	}
}

// An exchange that has begun goes on with its method or not at all.
// Matrix: AU-21
func TestTheMethodCannotChangeInTheMiddle(t *testing.T) {
	server := newKeyed(auth.CRC)
	server.also = []auth.Method{auth.None}
	cc, ac := keyedConfigs(newKeyed(auth.CRC), server)
	c2s, s2c := capture(t, cc, ac)
	toAcceptor, toConnector := pieces(t, c2s), pieces(t, s2c)
	if toAcceptor[3].tag != frame.TagAuthRequestMore || toConnector[2].tag != frame.TagAuthReplyMore {
		t.Fatal("not the rounds that this test knows")
	}
	for _, method := range []auth.Method{0, auth.None, auth.Cephx, 77, 1 << 31} {
		// The acceptor has sent AUTH_REPLY_MORE of cephx; the peer begins anew.
		again := wire2.AuthRequest{Method: uint32(method), PreferredModes: []uint32{1}, Payload: append([]byte{1}, make([]byte, 16)...)}
		peer := append(join(toAcceptor[:3]), encode(t, frame.TagAuthRequest, again.AppendTo(nil))...)
		link := linktest.Scripted(peer)
		if _, _, err := Accept(t.Context(), link, ac); !errors.Is(err, ErrUnexpectedFrame) || !errors.Is(err, handshake.ErrAuth) {
			t.Errorf("acceptor, %v: %v", method, err)
		}
		sent := pieces(t, link.Out.Content())
		if last := sent[len(sent)-1].tag; last != frame.TagAuthReplyMore {
			t.Errorf("acceptor, %v: answered with %v", method, last)
		}
		// The connector has answered a challenge of cephx; the refusal is of another one.
		if method == auth.Cephx {
			continue
		}
		bad := wire2.AuthBadMethod{Method: uint32(method), Result: auth.EACCES, AllowedMethods: []uint32{uint32(method)}, AllowedModes: []uint32{1}}
		peer = append(join(toConnector[:3]), encode(t, frame.TagAuthBadMethod, bad.AppendTo(nil))...)
		if _, _, err := Connect(t.Context(), linktest.Scripted(peer), cc); !errors.Is(err, ErrUnexpectedFrame) || !errors.Is(err, handshake.ErrAuth) {
			t.Errorf("connector, %v: %v", method, err)
		}
	}
}
