package handshake2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// echo checks that the two streams still understand each other.
func echo(t *testing.T, a, b outcome) {
	t.Helper()
	for i, pair := range [][2]*Stream{{a.stream, b.stream}, {b.stream, a.stream}, {a.stream, b.stream}} {
		want := bytes.Repeat([]byte{byte(i + 1)}, 40*i+1)
		must(t, pair[0].WriteFrame(t.Context(), frame.TagClientIdent, want))
		tag, got, err := pair[1].ReadFrame(t.Context())
		if err != nil || tag != frame.TagClientIdent || !bytes.Equal(got, want) {
			t.Fatalf("%v %x, %v", tag, got, err)
		}
	}
}

// Matrix: HS-02, AU-01, IN-04
func TestEveryRevisionAndMode(t *testing.T) {
	for _, single := range []bool{false, true} {
		for _, cRev0 := range []bool{false, true} {
			for _, sRev0 := range []bool{false, true} {
				for _, mode := range []auth.Mode{0, auth.CRC, auth.Secure} { // 0: method none
					t.Run(fmt.Sprintf("rev0 %v %v, %v, single %v", cRev0, sRev0, mode, single), func(t *testing.T) {
						cc, ac := noneConfigs()
						want := auth.CRC
						if mode != 0 {
							want = mode
							cc, ac = keyedConfigs(newKeyed(mode), newKeyed(bothMode...))
						}
						cc.Rev0Only, ac.Rev0Only = cRev0, sRev0
						c, s := linktest.New()
						c.Single, s.Single = single, single
						x, y := both(t, t.Context(), c, s, cc, ac)
						must(t, errors.Join(x.err, y.err))
						rev := frame.Rev1
						if cRev0 || sRev0 {
							rev = frame.Rev0
						}
						for _, p := range []*handshake.Peer{x.peer, y.peer} {
							if p.Revision != rev || p.Mode != want || p.Auth.Mode != want || p.Compression != wire.CompressionNone {
								t.Errorf("%+v", p)
							}
						}
						if x.peer.Auth.GlobalID != y.peer.Auth.GlobalID || x.peer.Auth.GlobalID == 0 {
							t.Errorf("global ids %d, %d", x.peer.Auth.GlobalID, y.peer.Auth.GlobalID)
						}
						if x.peer.SeenAs != (wire.Addr{Type: wire.AddrMsgr2, AddrPort: clientAt}) || y.peer.Target != target {
							t.Errorf("seen as %v, target %v", x.peer.SeenAs, y.peer.Target)
						}
						echo(t, x, y)
						enc, dec := x.stream.Release()
						if enc == nil || dec == nil || dec.Rev() != rev || dec.IsSecure() != (want == auth.Secure) {
							t.Error("released codecs do not fit")
						}
						if _, _, err := x.stream.ReadFrame(t.Context()); !errors.Is(err, ErrReleased) {
							t.Error(err)
						}
						if err := x.stream.WriteFrame(t.Context(), frame.TagAck, nil); !errors.Is(err, ErrReleased) {
							t.Error(err)
						}
						enc, dec = y.stream.enc, y.stream.dec
						y.stream.Wipe()
						_, out := enc.AppendFrame(nil, frame.TagAck, nil)
						_, in := dec.Open(make([]byte, dec.HeadSize()))
						if want == auth.Secure && (!errors.Is(out, frame.ErrKeys) || !errors.Is(in, frame.ErrKeys)) {
							t.Errorf("keys are left: %v, %v", out, in)
						}
					})
				}
			}
		}
	}
}

// Matrix: HS-03, HS-04, HS-05, IN-04
func TestBannerRules(t *testing.T) {
	cc, ac := noneConfigs()
	sides := roles(t, cc, ac)
	banner := func(supported, required uint64, extra int) []byte {
		p := wire2.Banner{Supported: supported, Required: required}.AppendTo(nil)
		p[8] += byte(extra)
		if extra < 0 {
			return p[:len(p)+extra]
		}
		return append(p, make([]byte, extra)...)
	}
	for _, c := range []struct {
		name     string
		peer     []byte
		want     error // nil: the banner passes
		terminal bool
	}{
		{"plain", banner(1, 0, 0), nil, false},
		{"longer payload", banner(1, 0, 8), nil, false},
		{"shorter payload", banner(1, 0, -1), wire.ErrTruncated, false},
		{"unknown supported bits", banner(1|1<<63, 0, 0), nil, false},
		{"unknown required bit", banner(1|1<<63, 1<<63, 0), handshake.ErrFeatures, true},
		{"requires compression", banner(3, 2, 0), handshake.ErrFeatures, true},
		{"requires what we have", banner(1, 1, 0), nil, false},
	} {
		for _, side := range sides {
			err := side.hears(c.peer)
			e := wantError(t, err)
			if c.want == nil && e.Stage != handshake.StageHello || c.want != nil && (e.Stage != handshake.StageBanner || !errors.Is(err, c.want) || e.Terminal() != c.terminal) {
				t.Errorf("%s, %s: %v", side.name, c.name, err)
			}
		}
	}
}

func TestDeadlineEndsASilentPeer(t *testing.T) {
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	sides := roles(t, cc, ac)
	synctest.Test(t, func(t *testing.T) {
		for _, side := range sides {
			for n := 0; n < len(side.peer); n += 13 {
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				err := side.run(ctx, &buffered{end: &end{In: linktest.NewPipe(bytes.Clone(side.peer[:n])...), Out: linktest.NewPipe()}})
				cancel()
				if e := wantError(t, err); !errors.Is(err, context.DeadlineExceeded) || e.Terminal() {
					t.Errorf("%s, silent after %d: %v", side.name, n, err)
				}
				if d := time.Since(start); d != 10*time.Second {
					t.Errorf("%s, silent after %d: took %v", side.name, n, d)
				}
			}
		}
	})
}

func TestConfigurationErrors(t *testing.T) {
	c, s := linktest.New()
	if _, _, err := Connect(t.Context(), c, ConnectConfig{}); !errors.Is(err, handshake.ErrConfig) || !wantError(t, err).Terminal() {
		t.Error(err)
	}
	if _, _, err := Accept(t.Context(), s, AcceptConfig{}); !errors.Is(err, handshake.ErrConfig) {
		t.Error(err)
	}
}

// Matrix: FR-34, IN-04
func TestCompressionNegotiation(t *testing.T) {
	always := func(wire.EntityType, auth.Mode) bool { return true }
	never := func(wire.EntityType, auth.Mode) bool { return false }
	toOSD := func(peer wire.EntityType, mode auth.Mode) bool { return peer == wire.OSD && mode == auth.Secure }
	toClient := func(peer wire.EntityType, mode auth.Mode) bool { return peer == wire.Client && mode == auth.Secure }
	list := func(want func(wire.EntityType, auth.Mode) bool, m ...wire.CompressionMethod) *Compression {
		return &Compression{Methods: m, Want: want}
	}
	for _, c := range []struct {
		name string
		c, s *Compression
		mode auth.Mode
		want [2]wire.CompressionMethod
	}{
		{"not announced by the connector", nil, list(always, wire.CompressionZstd), auth.CRC, [2]wire.CompressionMethod{}},
		{"not announced by the acceptor", list(always, wire.CompressionZstd), nil, auth.CRC, [2]wire.CompressionMethod{}},
		{"the connector's order decides", list(always, wire.CompressionLZ4, wire.CompressionZstd, wire.CompressionSnappy), list(always, wire.CompressionSnappy, wire.CompressionZstd), auth.CRC, [2]wire.CompressionMethod{wire.CompressionZstd, wire.CompressionZstd}},
		{"nothing in common", list(always, wire.CompressionLZ4), list(always, wire.CompressionSnappy), auth.CRC, [2]wire.CompressionMethod{}},
		{"connector does not want", list(never, wire.CompressionLZ4), list(always, wire.CompressionLZ4), auth.CRC, [2]wire.CompressionMethod{}},
		{"acceptor does not want", list(always, wire.CompressionLZ4), list(never, wire.CompressionLZ4), auth.CRC, [2]wire.CompressionMethod{}},
		{"none is no method", list(always, wire.CompressionNone), list(always, wire.CompressionNone), auth.CRC, [2]wire.CompressionMethod{}},
		{"what both want is said of their peers", list(toOSD, wire.CompressionLZ4), list(toClient, wire.CompressionLZ4), auth.Secure, [2]wire.CompressionMethod{wire.CompressionLZ4, wire.CompressionLZ4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cc, ac := keyedConfigs(newKeyed(c.mode), newKeyed(c.mode))
			cc.Compression, ac.Compression = c.c, c.s
			var installed [2]wire.CompressionMethod // before the session begins: a peer may compress its ident
			for i, side := range []*Compression{c.c, c.s} {
				if side != nil {
					side.Install = func(_ *frame.Encoder, _ *frame.Decoder, m wire.CompressionMethod) { installed[i] = m }
				}
			}
			x, y := meet(t, cc, ac)
			must(t, errors.Join(x.err, y.err))
			if got := [2]wire.CompressionMethod{x.peer.Compression, y.peer.Compression}; got != c.want || installed != c.want {
				t.Errorf("got %v, installed %v, want %v", got, installed, c.want)
			}
			echo(t, x, y)
		})
	}
	// An acceptor that chooses what was not offered is not believed.
	cc, ac := keyedConfigs(newKeyed(auth.CRC), newKeyed(auth.CRC))
	wanting(&cc, &ac)
	connector := roles(t, cc, ac)[0]
	said := pieces(t, connector.peer)
	done := wire2.CompressionDone{Compress: true, Method: uint32(wire.CompressionSnappy)}.AppendTo(nil)
	if err := connector.hears(append(join(said[:len(said)-1]), encode(t, frame.TagCompressionDone, done)...)); !errors.Is(err, ErrUnexpectedFrame) || errors.Is(err, handshake.ErrAuth) {
		t.Errorf("snappy in place of zstd: %v", err)
	}
}

// recorder notes every point and fails at one of them.
type recorder struct {
	points []string
	failAt int // counted from 1
}

var errInjected = errors.New("injected")

func (r *recorder) note(s string) error {
	r.points = append(r.points, s)
	if len(r.points) == r.failAt {
		return errInjected
	}
	return nil
}

// At implements probe.Probe.
func (r *recorder) At(_ context.Context, e probe.Event) error {
	if e.When == probe.Before {
		return r.note("before " + e.Point.String())
	}
	return r.note("after " + e.Point.String())
}

// probed is the socket of one side, which p is told of.
func probed(p probe.Probe) *probe.Socket { return probe.NewSocket(p, 1, false, nil) }

// Matrix: AU-25, OB-05
func TestAProbeSeesEveryStepAndCanFailIt(t *testing.T) {
	run := func(c, s *recorder) (x, y outcome) {
		cc, ac := keyedConfigs(newKeyed(auth.Secure), newKeyed(auth.Secure))
		cc.Probe, ac.Probe = probed(c), probed(s)
		return meet(t, cc, ac)
	}
	c, s := &recorder{}, &recorder{}
	if x, y := run(c, s); x.err != nil || y.err != nil {
		t.Fatal(x.err, y.err)
	}
	wantC := "banner write|banner read|banner payload read|write HELLO|read HELLO|write AUTH_REQUEST|read AUTH_REPLY_MORE|" +
		"write AUTH_REQUEST_MORE|read AUTH_DONE|write AUTH_SIGNATURE|read AUTH_SIGNATURE"
	wantS := "banner write|banner read|banner payload read|write HELLO|read HELLO|read AUTH_REQUEST|write AUTH_REPLY_MORE|" +
		"read AUTH_REQUEST_MORE|write AUTH_DONE|write AUTH_SIGNATURE|read AUTH_SIGNATURE"
	for _, v := range []struct {
		got  []string
		want string
	}{{c.points, wantC}, {s.points, wantS}} {
		var want []string
		for p := range strings.SplitSeq(v.want, "|") {
			want = append(want, "before "+p, "after "+p)
		}
		if fmt.Sprint(v.got) != fmt.Sprint(want) {
			t.Errorf("got  %q\nwant %q", v.got, want)
		}
	}
	for i := range c.points {
		if x, _ := run(&recorder{failAt: i + 1}, &recorder{}); !errors.Is(x.err, errInjected) || errors.Is(x.err, handshake.ErrAuth) {
			t.Errorf("connector at %q: %v", c.points[i], x.err)
		}
		if _, y := run(&recorder{}, &recorder{failAt: i + 1}); !errors.Is(y.err, errInjected) || errors.Is(y.err, handshake.ErrAuth) {
			t.Errorf("acceptor at %q: %v", s.points[i], y.err)
		}
	}
}

// HELLO says what we are and where we see the peer: an IPv4 address as such, also
// behind a socket of both families.
// Matrix: HS-08
func TestHelloShowsThePeerItsAddress(t *testing.T) {
	for seen, want := range map[string]string{
		"10.1.2.3:4567":          "v2:10.1.2.3:4567/0",
		"[::ffff:10.1.2.3]:4567": "v2:10.1.2.3:4567/0",
		"[2001:db8::7]:65535":    "v2:[2001:db8::7]:65535/0",
	} {
		_, ac := noneConfigs()
		ac.PeerAddr, ac.EntityType = netip.MustParseAddrPort(seen), wire.OSD
		link := linktest.Scripted(wire2.Banner{Supported: 1}.AppendTo(nil))
		if _, _, err := Accept(t.Context(), link, ac); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		sent := pieces(t, link.Out.Content())
		h, err := wire2.DecodeHello(sent[1].payload)
		if err != nil || len(sent) != 2 || sent[1].tag != frame.TagHello || h.EntityType != wire.OSD || h.PeerAddr.String() != want {
			t.Errorf("%s: %v as %v, %v", seen, h.PeerAddr, h.EntityType, err)
		}
	}
}
