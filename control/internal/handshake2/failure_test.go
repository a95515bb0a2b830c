package handshake2

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// ended is how a handshake ends on one side.
type ended struct {
	err      error // nil: it succeeds
	auth     bool  // the error is handshake.ErrAuth: the authentication failed, not the network
	terminal bool
}

var errFailed = errors.New("key ring is gone")

// A handshake that fails tells both sides why, whether it is of use to dial again, and whether the
// authentication failed.
// Matrix: AU-04, AU-13, AU-15, AU-25, HI-14, HS-09
func TestBothSidesLearnWhyAHandshakeFails(t *testing.T) {
	refused, gone := &auth.Refused{Errno: auth.EPERM}, ended{err: io.EOF}
	secure := func(c, s *keyed) { c.modes, s.modes = []auth.Mode{auth.Secure}, []auth.Mode{auth.Secure} }
	short := func(n int) func(k *keyed) { return func(k *keyed) { k.secret = n } }
	noKey := func(k *keyed) { k.key = 0 }
	ofClient := func(f func(k *keyed)) func(c, s *keyed) { return func(c, s *keyed) { secure(c, s); f(c) } }
	ofServer := func(f func(k *keyed)) func(c, s *keyed) { return func(c, s *keyed) { secure(c, s); f(s) } }
	for _, c := range []struct {
		name                string
		set                 func(c, s *keyed)
		change              func(cc *ConnectConfig, ac *AcceptConfig)
		connector, acceptor ended
		stage               handshake.Stage // of the connector's error
	}{
		{"refused", func(_, s *keyed) { s.refuse = refused }, nil,
			ended{refused, true, true}, ended{refused, true, false}, handshake.StageAuth},
		{"no mode in common", func(c, s *keyed) { s.modes = []auth.Mode{auth.Secure} }, nil,
			ended{auth.ErrNoMode, true, true}, ended{auth.ErrNoMode, true, false}, handshake.StageAuth},
		{"another key", func(_, s *keyed) { s.key = 8 }, nil,
			ended{ErrSignature, true, false}, ended{ErrSignature, true, false}, handshake.StageAuth},
		{"another key, encrypted", ofServer(func(k *keyed) { k.key = 8 }), nil,
			ended{ErrSignature, true, false}, ended{ErrSignature, true, false}, handshake.StageAuth},
		{"short secret of the connector", ofClient(short(auth.ConnectionSecretMin - 1)), nil,
			ended{frame.ErrKeys, true, false}, gone, handshake.StageAuth},
		{"no secret of the connector", ofClient(short(0)), nil,
			ended{frame.ErrKeys, true, false}, gone, handshake.StageAuth},
		{"no key of the connector", ofClient(noKey), nil,
			ended{handshake.ErrNoSessionKey, true, false}, gone, handshake.StageAuth},
		{"the shortest secret", func(c, s *keyed) {
			secure(c, s)
			c.secret, s.secret = auth.ConnectionSecretMin, auth.ConnectionSecretMin
		}, nil, ended{}, ended{}, ""},
		// The acceptor notices before it says AUTH_DONE.
		{"short secret of the acceptor", ofServer(short(auth.ConnectionSecretMin - 1)), nil,
			gone, ended{frame.ErrKeys, true, false}, handshake.StageAuth},
		{"no secret of the acceptor", ofServer(short(0)), nil,
			gone, ended{frame.ErrKeys, true, false}, handshake.StageAuth},
		{"no key of the acceptor", ofServer(noKey), nil,
			gone, ended{handshake.ErrNoSessionKey, true, false}, handshake.StageAuth},
		{"busy at the start", func(_, s *keyed) { s.startErr = auth.ErrBusy }, nil,
			gone, ended{err: auth.ErrBusy}, handshake.StageAuth},
		{"busy later", func(_, s *keyed) { s.refuse = auth.ErrBusy }, nil,
			gone, ended{err: auth.ErrBusy}, handshake.StageAuth},
		{"the client cannot start", func(c, _ *keyed) { c.startErr = errFailed }, nil,
			ended{errFailed, true, true}, gone, handshake.StageAuth},
		{"the client is cancelled", func(c, _ *keyed) { c.startErr = context.Canceled }, nil,
			ended{err: context.Canceled}, gone, handshake.StageAuth},
		{"the client cannot answer", func(c, _ *keyed) { c.moreErr = errFailed }, nil,
			ended{errFailed, true, true}, gone, handshake.StageAuth},
		{"the client does not believe", func(c, _ *keyed) { c.doneErr = errFailed }, nil, // another answer may be good
			ended{errFailed, true, false}, gone, handshake.StageAuth},
		{"too many requests", func(c, s *keyed) { c.retries, s.refuse = 1000, refused }, nil,
			ended{handshake.ErrTooManyRounds, true, false}, ended{handshake.ErrTooManyRounds, true, false}, handshake.StageAuth},
		{"as many rounds as may be", func(_, s *keyed) { s.rounds = maxAuthRounds }, nil, ended{}, ended{}, ""},
		{"too many rounds", func(_, s *keyed) { s.rounds = maxAuthRounds + 1 }, nil,
			gone, ended{handshake.ErrTooManyRounds, true, false}, handshake.StageAuth},
		{"another type", nil, func(cc *ConnectConfig, _ *AcceptConfig) { cc.PeerType = wire.Mon },
			ended{handshake.ErrPeerType, false, true}, gone, handshake.StageHello},
		{"any type", nil, func(cc *ConnectConfig, ac *AcceptConfig) { cc.PeerType, ac.EntityType = wire.Any, 0x77 },
			ended{}, ended{}, ""},
		{"every type", nil, func(cc *ConnectConfig, ac *AcceptConfig) { cc.PeerType, ac.EntityType = 0, 0x77 },
			ended{}, ended{}, ""},
		// The crcs are left out from the first frame on.
		{"no crcs of either", nil, func(cc *ConnectConfig, ac *AcceptConfig) { cc.NoDataCRC, ac.NoDataCRC = true, true },
			ended{}, ended{}, ""},
		{"no crcs of the connector", nil, func(cc *ConnectConfig, _ *AcceptConfig) { cc.NoDataCRC = true },
			gone, ended{err: frame.ErrSegmentCRC}, handshake.StageAuth},
		{"no crcs of the acceptor", nil, func(_ *ConnectConfig, ac *AcceptConfig) { ac.NoDataCRC = true },
			ended{err: frame.ErrSegmentCRC}, gone, handshake.StageHello},
	} {
		client, server := newKeyed(auth.CRC), newKeyed(auth.CRC)
		if c.set != nil {
			c.set(&client, &server)
		}
		cc, ac := keyedConfigs(client, server)
		if c.change != nil {
			c.change(&cc, &ac)
		}
		var said recorder // by the acceptor
		if errors.Is(c.acceptor.err, frame.ErrKeys) || errors.Is(c.acceptor.err, handshake.ErrNoSessionKey) {
			ac.Probe = probed(&said)
		}
		x, y := meet(t, cc, ac)
		for _, k := range []keyed{client, server} {
			if k.gave.key != nil && !k.gave.isWiped() {
				t.Errorf("%s: left %x %x", c.name, k.gave.key, k.gave.secret)
			}
		}
		if slices.Contains(said.points, "before write AUTH_DONE") {
			t.Errorf("%s: the acceptor says that all is well", c.name)
		}
		for _, side := range []struct {
			got  error
			want ended
		}{{x.err, c.connector}, {y.err, c.acceptor}} {
			if side.want.err == nil && side.got == nil {
				continue
			}
			if !errors.Is(side.got, side.want.err) || errors.Is(side.got, handshake.ErrAuth) != side.want.auth ||
				wantError(t, side.got).Terminal() != side.want.terminal {
				t.Errorf("%s: %v, want %+v", c.name, side.got, side.want)
			}
		}
		if x.err != nil && (wantError(t, x.err).Stage != c.stage || !strings.Contains(x.err.Error(), target.String())) {
			t.Errorf("%s: %v, want stage %s and the peer", c.name, x.err, c.stage)
		}
		if c.name != "too many requests" {
			continue
		}
		if got := len(*client.results); got != maxAuthRequests || slices.Max(*client.results) != auth.EPERM || !errors.Is(y.err, refused) {
			t.Errorf("results %v, the acceptor has %v", *client.results, y.err)
		}
		if client.wiped.Load() != 1 || server.wiped.Load() != maxAuthRequests {
			t.Errorf("wiped %d and %d exchanges", client.wiped.Load(), server.wiped.Load())
		}
	}
}

// Matrix: HI-14
func TestAnAcceptorThatDoesNotCountRoundsIsGivenUp(t *testing.T) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	_, s2c := capture(t, cc, ac)
	list := pieces(t, s2c)
	peer := join(list[:2])
	for range maxAuthRounds + 1 {
		peer = append(peer, list[2].bytes...)
	}
	if _, _, err := Connect(t.Context(), linktest.Scripted(peer), cc); !errors.Is(err, handshake.ErrTooManyRounds) {
		t.Error(err)
	}
}

// The end of a stream, wherever it comes, and a time limit are no failed authentication.
// Matrix: AU-25
func TestAnEndOfTheStreamIsTheNetwork(t *testing.T) {
	cc, ac := keyedConfigs(newKeyed(auth.Secure), newKeyed(auth.Secure))
	for _, side := range roles(t, cc, ac) {
		for n := range side.peer {
			err := side.hears(side.peer[:n])
			want := io.ErrUnexpectedEOF
			if n == 0 || n == wire2.BannerPrefixSize || n >= wire2.BannerSize && errors.Is(err, io.EOF) { // between two parts
				want = io.EOF
			}
			if wantError(t, err); errors.Is(err, handshake.ErrAuth) || !errors.Is(err, want) {
				t.Fatalf("%s after %d bytes: %v", side.name, n, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errLast)
		link, _ := linktest.New()
		if err := side.run(ctx, link); errors.Is(err, handshake.ErrAuth) || !errors.Is(err, errLast) {
			t.Errorf("%s: %v", side.name, err)
		}
	}
}
