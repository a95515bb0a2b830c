package handshake2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// piece is a banner or a frame in a captured stream.
type piece struct {
	tag     frame.Tag // 0 for the banner
	bytes   []byte
	payload []byte
}

// pieces takes a captured stream in crc mode and revision 1 apart.
func pieces(t testing.TB, stream []byte) []piece {
	t.Helper()
	out := []piece{{bytes: stream[:wire2.BannerSize]}}
	dec := frame.NewDecoder(frame.Rev1, frame.DefaultLimits())
	for rest := stream[wire2.BannerSize:]; len(rest) > 0; {
		h, err := dec.Open(rest[:dec.HeadSize()])
		must(t, err)
		n := dec.HeadSize() + dec.RestSize(h)
		f, err := dec.Finish(h, rest[:dec.HeadSize()], rest[dec.HeadSize():n])
		must(t, err)
		out = append(out, piece{h.Tag, rest[:n], f.Seg[0]})
		rest = rest[n:]
	}
	return out
}

func join(list []piece) (out []byte) {
	for _, p := range list {
		out = append(out, p.bytes...)
	}
	return out
}

func encode(t testing.TB, tag frame.Tag, segs ...[]byte) []byte {
	t.Helper()
	p, err := frame.NewEncoder(frame.Rev1).AppendFrame(nil, tag, segs...)
	must(t, err)
	return p
}

// wanting makes both sides negotiate compression too, so that every state exists.
func wanting(cc *ConnectConfig, ac *AcceptConfig) {
	always := &Compression{Methods: []wire.CompressionMethod{wire.CompressionZstd}, Want: func(wire.EntityType, auth.Mode) bool { return true }}
	cc.Compression, ac.Compression = always, always
}

// Matrix: FR-30, HS-11, KA-01, HI-09, HI-26
func TestIllegalFramesAreFaultsInEveryState(t *testing.T) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	wanting(&cc, &ac)
	answers := []frame.Tag{frame.TagAuthBadMethod, frame.TagAuthReplyMore, frame.TagAuthDone}
	all := [2][][]frame.Tag{
		{{frame.TagHello}, answers, answers, {frame.TagAuthSignature}, {frame.TagCompressionDone}},
		{{frame.TagHello}, {frame.TagAuthRequest}, {frame.TagAuthRequestMore}, {frame.TagAuthSignature}, {frame.TagCompressionRequest}},
	}
	for i, side := range roles(t, cc, ac) {
		peer := pieces(t, side.peer)
		if len(peer) != 1+len(all[i]) {
			t.Fatalf("%s: %d pieces", side.name, len(peer))
		}
		for state, legal := range all[i] {
			before := join(peer[:1+state])
			real := peer[1+state]
			for tag := range frame.Tag(32) {
				if slices.Contains(legal, tag) {
					continue
				}
				payloads, want := [][]byte{nil, real.payload}, ErrUnexpectedFrame
				switch {
				case !tag.Known():
					want = frame.ErrTag
				case tag == frame.TagMessage: // other headers are refused for their length
					payloads = [][]byte{make([]byte, frame.MessageHeaderSize)}
				}
				for _, payload := range payloads {
					err := side.hears(append(bytes.Clone(before), encode(t, tag, payload)...))
					if !errors.Is(err, want) || wantError(t, err).Terminal() {
						t.Errorf("%s, state %d, %v: %v", side.name, state, tag, err)
					}
				}
			}
			// The right tag with a payload that ends too early, or with more than one segment.
			for n := range real.payload {
				err := side.hears(append(bytes.Clone(before), encode(t, real.tag, real.payload[:n])...))
				if !errors.Is(err, wire.ErrTruncated) {
					t.Errorf("%s, %v cut to %d: %v", side.name, real.tag, n, err)
				}
			}
			err := side.hears(append(bytes.Clone(before), encode(t, real.tag, real.payload, []byte("extra"))...))
			if !errors.Is(err, frame.ErrTooLarge) && !errors.Is(err, ErrUnexpectedFrame) {
				t.Errorf("%s, %v with two segments: %v", side.name, real.tag, err)
			}
			// Surplus at the end of a payload is tolerated; only a signature is then wrong.
			err = side.hears(append(bytes.Clone(before), encode(t, real.tag, append(bytes.Clone(real.payload), 1, 2, 3))...))
			if errors.Is(err, wire.ErrMalformed) || errors.Is(err, ErrUnexpectedFrame) {
				t.Errorf("%s, %v with surplus: %v", side.name, real.tag, err)
			}
		}
	}
}

// Matrix: AU-03
func TestModeIsTheConnectorsFirstThatIsAllowed(t *testing.T) {
	for _, c := range []struct {
		offered, allowed, limitC, limitS []auth.Mode
		want                             auth.Mode // 0: refused with EOPNOTSUPP; 9: the connector does not even ask
	}{
		{[]auth.Mode{auth.CRC, auth.Secure}, bothMode, nil, nil, auth.CRC},
		{[]auth.Mode{auth.Secure, auth.CRC}, []auth.Mode{auth.CRC, auth.Secure}, nil, nil, auth.Secure},
		{[]auth.Mode{auth.Secure, auth.CRC}, []auth.Mode{auth.CRC}, nil, nil, auth.CRC},
		{[]auth.Mode{auth.CRC}, []auth.Mode{auth.Secure}, nil, nil, 0},
		{bothMode, bothMode, []auth.Mode{auth.CRC}, nil, auth.CRC},
		{bothMode, bothMode, nil, []auth.Mode{auth.CRC}, auth.CRC},
		{bothMode, bothMode, []auth.Mode{auth.Secure}, []auth.Mode{auth.CRC}, 0},
		{[]auth.Mode{auth.CRC}, bothMode, []auth.Mode{auth.Secure}, nil, 9},
	} {
		client := newKeyed(c.offered...)
		cc, ac := keyedConfigs(client, newKeyed(c.allowed...))
		cc.Modes, ac.Modes = c.limitC, c.limitS
		x, y := meet(t, cc, ac)
		switch c.want {
		case 0:
			if !errors.Is(x.err, auth.ErrNoMode) || !errors.Is(x.err, handshake.ErrGaveUp) || !errors.Is(y.err, auth.ErrNoMode) || fmt.Sprint(*client.results) != "[-95]" {
				t.Errorf("%+v: %v, %v, results %v", c, x.err, y.err, *client.results)
			}
		case 9:
			if !errors.Is(x.err, auth.ErrNoMode) || len(*client.results) != 0 {
				t.Errorf("%+v: %v", c, x.err)
			}
		default:
			if x.err != nil || y.err != nil || x.peer.Mode != c.want || y.peer.Mode != c.want {
				t.Errorf("%+v: %v, %v", c, x.err, y.err)
			}
		}
	}
}

// Matrix: AU-03
func TestUnknownMethodIsRefusedWithBothLists(t *testing.T) {
	cc, _ := keyedConfigs(newKeyed(bothMode...), keyed{})
	cc.PeerType = wire.Mon
	_, ac := noneConfigs()
	a, b := linktest.New()
	var s2c []byte
	b.Tamper = collecting(&s2c)
	x, y := both(t, t.Context(), a, b, cc, ac)
	if e := wantError(t, x.err); !errors.Is(x.err, auth.ErrNoMethod) || !errors.Is(x.err, &auth.Refused{Errno: auth.EOPNOTSUPP}) || !e.Terminal() {
		t.Error(x.err)
	}
	// The acceptor tells why the peer went away, not only that it did.
	if !errors.Is(y.err, io.EOF) || !errors.Is(y.err, auth.ErrNoMethod) {
		t.Error(y.err)
	}
	list := pieces(t, s2c)
	bad, err := wire2.DecodeAuthBadMethod(list[len(list)-1].payload)
	if got := fmt.Sprint(bad); err != nil || got != "{2 -95 [1] [2 1]}" {
		t.Error(got, err)
	}
}

// answer makes an acceptor that sends the given answer to AUTH_REQUEST.
func answer(t *testing.T, tag frame.Tag, payload []byte) []byte {
	hello := wire2.Hello{EntityType: wire.OSD}
	return slices.Concat(wire2.Banner{Supported: 1}.AppendTo(nil), encode(t, frame.TagHello, hello.AppendTo(nil)), encode(t, tag, payload))
}

// Matrix: AU-07
func TestDowngradeIsAFault(t *testing.T) {
	for _, mode := range []uint32{0, 1, 3, 1 << 31} {
		cc, _ := keyedConfigs(newKeyed(auth.Secure), keyed{})
		peer := answer(t, frame.TagAuthDone, wire2.AuthDone{GlobalID: 1, Mode: mode}.AppendTo(nil))
		if _, _, err := Connect(t.Context(), linktest.Scripted(peer), cc); !errors.Is(err, auth.ErrDowngrade) || wantError(t, err).Terminal() {
			t.Errorf("mode %d: %v", mode, err)
		}
	}
	cc, _ := noneConfigs()
	cc.PeerType = wire.OSD
	peer := answer(t, frame.TagAuthDone, wire2.AuthDone{GlobalID: 1, Mode: 2}.AppendTo(nil))
	if _, _, err := Connect(t.Context(), linktest.Scripted(peer), cc); !errors.Is(err, auth.ErrDowngrade) {
		t.Errorf("secure without keys: %v", err)
	}
}

func TestRequestForMethodZeroIsRefused(t *testing.T) {
	_, ac := keyedConfigs(keyed{}, newKeyed(auth.CRC))
	peer := answer(t, frame.TagAuthRequest, wire2.AuthRequest{Method: 0, PreferredModes: []uint32{1}}.AppendTo(nil))
	if _, _, err := Accept(t.Context(), linktest.Scripted(peer), ac); !errors.Is(err, auth.ErrNoMethod) {
		t.Error(err)
	}
}

// Matrix: AU-05
func TestZeroSignatureNeedsAMethodWithoutKey(t *testing.T) {
	with := func(side *role, sig []byte) error {
		last := encode(t, frame.TagAuthSignature, sig)
		return side.hears(slices.Concat(slices.Concat(side.writes[:len(side.writes)-1]...), last))
	}
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	for _, side := range roles(t, cc, ac) {
		if err := with(&side, make([]byte, wire2.SignatureSize)); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v", side.name, err)
		}
	}
	cc, ac = noneConfigs()
	for _, side := range roles(t, cc, ac) {
		for i := range wire2.SignatureSize {
			sig := make([]byte, wire2.SignatureSize)
			sig[i] = 1
			if err := with(&side, sig); !errors.Is(err, ErrSignature) {
				t.Errorf("%s: %v", side.name, err)
			}
		}
	}
}
