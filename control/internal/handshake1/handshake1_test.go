package handshake1_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var (
	osdAddr  = wire.Addr{Type: wire.AddrLegacy, Nonce: 77, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	ownAddr  = wire.Addr{Type: wire.AddrLegacy, Nonce: 5}
	clientAt = netip.MustParseAddrPort("10.0.0.2:45678")
	admin    = wire.EntityName{Type: wire.Client, ID: "admin"}
)

// pair is a client and an osd.
type pair struct {
	cc         handshake1.ConnectConfig
	ac         handshake1.AcceptConfig
	cHas, aHas wire.Features // what they support
}

func noneAuth() pair {
	return pair{
		cc: handshake1.ConnectConfig{
			Options: handshake1.Options{EntityType: wire.Client, Own: ownAddr}, Target: osdAddr, PeerType: wire.OSD, Auth: none.NewClient(admin),
		},
		ac: handshake1.AcceptConfig{
			Options: handshake1.Options{EntityType: wire.OSD, Own: osdAddr}, PeerAddr: clientAt, Auth: none.NewServer(none.ServerConfig{}),
		},
		cHas: wire.FeaturesPacific, aHas: wire.FeaturesPacific,
	}
}

var must = drivertest.Must

// cephxAuth is a pair whose client has a ticket for the osd.
func cephxAuth(t testing.TB, modes ...auth.Mode) pair {
	t.Helper()
	if modes == nil {
		modes = []auth.Mode{auth.Secure, auth.CRC}
	}
	ring, err := cephx.ReadKeyring(strings.NewReader("[client.admin]\n\tkey = AQC8Mgpp+gCFHhAAhjmCXn3YWEGuEvt1bd9FZw==\n\tcaps mon = \"allow r\"\n"))
	must(t, err)
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring})
	must(t, err)
	entity, _ := ring.Lookup(admin)
	of := func(wire.EntityType) []auth.Mode { return modes }
	client, err := cephx.NewClient(cephx.ClientConfig{Name: admin, Key: entity.Key, Modes: of})
	must(t, err)
	login(t, client, authority)
	server, err := cephx.NewServer(cephx.ServerConfig{Own: wire.OSD, Secrets: authority, Modes: of})
	must(t, err)
	p := noneAuth()
	p.cc.Auth, p.ac.Auth = client, server
	return p
}

// login is what MAuth messages carry on an open connection to a monitor of msgr1.
func login(t testing.TB, client *cephx.Client, authority *cephx.Authority) {
	t.Helper()
	var s *cephx.Session
	_, err := client.Login(func(protocol auth.Method, p []byte) (uint64, []byte, error) {
		var err error
		if protocol == 0 {
			s, p, err = authority.NewSession(p)
		} else {
			p, err = s.Handle(p)
		}
		return s.GlobalID(), p, err
	})
	must(t, err)
}

// outcome is what one side has in the end.
type outcome struct {
	machine
	from wire.Addr
	auth *auth.Result
	enc  *frame1.Encoder
	dec  *frame1.Decoder
}

func (p *pair) connect(ctx context.Context, link *linktest.End) (o outcome) {
	defer func() {
		if o.err != nil {
			link.Out.Close()
		}
	}()
	c, err := handshake1.Connect(ctx, link, p.cc)
	if err != nil {
		return outcome{machine: machine{err: err}}
	}
	s := session1.New(p.cc.EntityType, session.Policy{Lossy: true, Supported: p.cHas}, session.Peer{Type: p.cc.PeerType, Target: p.cc.Target, Dialled: true}, session.Backoff{})
	o.machine = machine{s: s, env: session.Env{Seq: new(session.GlobalSeq)}}
	if o.err = o.connect(ctx, c); o.err != nil {
		return o
	}
	o.from, o.auth = c.Own(), c.Auth()
	o.enc, o.dec, o.err = c.Release(o.s.Features)
	return o
}

func (p *pair) accept(ctx context.Context, link *linktest.End) (o outcome) {
	defer func() {
		if o.err != nil {
			link.Out.Close()
		}
	}()
	a, err := handshake1.Accept(ctx, link, p.ac)
	if err != nil {
		return outcome{machine: machine{err: err}}
	}
	o.env.Seq = new(session.GlobalSeq)
	policy := session.Policy{Lossy: true, Server: true, Supported: p.aHas}
	if o.err = o.accept(ctx, a, p.ac.EntityType, policy); o.err != nil {
		return o
	}
	o.from, o.auth = a.From(), a.Auth()
	o.enc, o.dec, o.err = a.Release(o.s.Features)
	return o
}

func (p *pair) run(ctx context.Context) (c, a outcome) {
	x, y := linktest.New()
	done := make(chan outcome)
	go func() { done <- p.accept(ctx, y) }()
	c = p.connect(ctx, x)
	return c, <-done
}

func wantError(t testing.TB, err error, stage handshake.Stage, cause error) {
	t.Helper()
	var e *handshake.Error
	if !errors.As(err, &e) || e.Stage != stage || e.Peer == "" || e.State == "" || !errors.Is(err, cause) {
		t.Errorf("error %#v (%v), want %v in stage %s", err, err, cause, stage)
	}
}

// exchange sends a message each way.
func exchange(t testing.TB, a, b outcome) {
	t.Helper()
	for _, w := range [][2]outcome{{a, b}, {b, a}} {
		h := frame1.Header{Seq: 1, Type: 42, SrcNum: -1}
		p := w[0].enc.AppendMessage(nil, &h, []byte("front"), nil, []byte("data"))
		m, err := w[1].dec.Header(p[1:][:frame1.NewHeaderSize])
		must(t, err)
		if err := w[1].dec.Footer(m, p[len(p)-w[1].dec.Form().FooterSize():], frame1.SumsOf([]byte("front"), nil, []byte("data"))); err != nil {
			t.Error(err)
		}
	}
}

// Matrix: V1-02
func TestSessionWithCephxIsSigned(t *testing.T) {
	const all = wire.FeaturesPacific
	for name, c := range map[string]struct {
		has    wire.Features
		signed bool
	}{
		"second form": {all, true}, "no MSG_AUTH": {all &^ wire1.FeatureMsgAuth, false},
	} {
		p := cephxAuth(t)
		p.aHas = c.has
		x, y := p.run(t.Context())
		if x.err != nil || y.err != nil {
			t.Fatal(name, x.err, y.err)
		}
		exchange(t, x, y)
		if y.auth.Entity != admin || y.auth.Method != auth.Cephx || y.auth.SessionKey != nil || x.auth.SessionKey != nil {
			t.Errorf("%s: %+v, %+v", name, y.auth, x.auth)
		}
		h := frame1.Header{Seq: 1}
		p2 := x.enc.AppendMessage(nil, &h, nil, nil, nil)
		if signed := p2[len(p2)-1]&4 != 0; signed != c.signed {
			t.Errorf("%s: signed %v", name, signed)
		}
		if c.signed {
			p2[len(p2)-3] ^= 1
			if err := y.dec.Footer(h, p2[len(p2)-frame1.NewFooterSize:], frame1.Sums{}); !errors.Is(err, frame1.ErrSignature) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A monitor wants no authorizer of clients, and one of monitors.
func TestWhoNeedsAnAuthorizer(t *testing.T) {
	for _, c := range []struct {
		from, to wire.EntityType
		want     bool
	}{{wire.Client, wire.Mon, false}, {wire.OSD, wire.Mon, false}, {wire.Mon, wire.Mon, true}, {wire.Client, wire.OSD, true}, {wire.OSD, wire.OSD, true}} {
		if got := handshake1.Authorizes(c.from, c.to); got != c.want {
			t.Errorf("%v to %v: %v", c.from, c.to, got)
		}
	}
	p := noneAuth()
	p.cc.PeerType, p.ac.EntityType = wire.Mon, wire.Mon
	p.cc.Auth, p.ac.Auth = nil, nil
	c, a := p.run(t.Context())
	if c.err != nil || a.err != nil || c.auth != nil || a.auth != nil {
		t.Fatal(c.err, a.err)
	}
	p.cc.EntityType = wire.Mon
	if c, _ = p.run(t.Context()); !errors.Is(c.err, handshake.ErrConfig) {
		t.Errorf("a monitor without an auth client: %v", c.err)
	}
	p = noneAuth()
	p.ac.Auth = nil
	if _, a = p.run(t.Context()); !errors.Is(a.err, handshake.ErrConfig) || errors.Is(a.err, handshake.ErrAuth) {
		t.Errorf("an osd without an auth server: %v", a.err)
	}
}

// Matrix: V1-02
func TestRefusedAuthorizers(t *testing.T) {
	secureOnly := cephxAuth(t, auth.Secure)
	mixed := noneAuth()
	mixed.ac.Auth = cephxAuth(t).ac.Auth
	stranger := cephxAuth(t)
	stranger.cc.Auth = cephxAuth(t).cc.Auth // a ticket of another authority
	for name, c := range map[string]struct {
		p     pair
		cause error
	}{
		"only mode secure":          {secureOnly, auth.ErrNoMode},
		"another method":            {mixed, &auth.Refused{}},
		"ticket of another cluster": {stranger, &auth.Refused{}},
	} {
		x, y := c.p.run(t.Context())
		wantError(t, x.err, handshake.StageAuth, c.cause)
		var e *handshake.Error
		if !errors.As(x.err, &e) || !e.Terminal() || !errors.Is(x.err, handshake.ErrAuth) {
			t.Errorf("%s: %v is not terminal, or not about the authentication", name, x.err)
		}
		if name != "only mode secure" && !errors.Is(y.err, handshake.ErrAuth) || !errors.Is(y.err, io.EOF) {
			t.Errorf("%s: acceptor: %v", name, y.err)
		}
	}
}

// odd is a client that hears another proof than was sent, and tries again after each refusal.
type odd struct{ auth.Client }

type oddExchange struct{ auth.ClientExchange }

func (c odd) Start(ctx context.Context, peer wire.EntityType) (auth.ClientExchange, error) {
	x, err := c.Client.Start(ctx, peer)
	return oddExchange{x}, err
}

func (x oddExchange) Done(ctx context.Context, id uint64, m auth.Mode, p []byte) (*auth.Result, error) {
	q := bytes.Clone(p)
	if len(q) > 0 {
		q[len(q)-1] ^= 1
	}
	return x.ClientExchange.Done(ctx, id, m, q)
}

func (oddExchange) BadMethod(context.Context, auth.Method, int32, []auth.Method, []auth.Mode) error {
	return nil
}

func TestAcceptorHasToProveItself(t *testing.T) {
	p := cephxAuth(t)
	p.cc.Auth = odd{p.cc.Auth}
	x, _ := p.run(t.Context())
	wantError(t, x.err, handshake.StageAuth, cephx.ErrServerProof)
}

// lateServer refuses the first authorizers, and keeps all.
type lateServer struct {
	auth.Server
	refuse int
	err    error
	shown  [][]byte
}

type lateExchange struct {
	auth.ServerExchange
	s *lateServer
}

func (s *lateServer) Start(ctx context.Context, peer wire.EntityType, m auth.Method, mode auth.Mode) (auth.ServerExchange, error) {
	x, err := s.Server.Start(ctx, peer, m, mode)
	return lateExchange{x, s}, err
}

func (x lateExchange) Handle(ctx context.Context, p []byte) ([]byte, *auth.Result, error) {
	x.s.shown = append(x.s.shown, p)
	if x.s.refuse--; x.s.refuse >= 0 {
		return nil, nil, x.s.err
	}
	return x.ServerExchange.Handle(ctx, p)
}

func TestAFreshAuthorizerIsTakenOnTheSameSocket(t *testing.T) {
	p := noneAuth()
	p.cc.Auth, p.ac.Auth = odd{p.cc.Auth}, &lateServer{Server: p.ac.Auth, refuse: 2, err: &auth.Refused{Errno: auth.EACCES}}
	x, y := p.run(t.Context())
	if x.err != nil || y.err != nil {
		t.Fatal(x.err, y.err)
	}
	exchange(t, x, y)
	p.ac.Auth = &lateServer{Server: none.NewServer(none.ServerConfig{}), refuse: 1000, err: &auth.Refused{Errno: auth.EACCES}}
	x, _ = p.run(t.Context())
	wantError(t, x.err, handshake.StageAuth, handshake.ErrTooManyRounds)
}

// An acceptor of Ceph keeps its challenge as long as the socket lives: a connect message that it wants again comes with the authorizer
// that has answered it. An acceptor of ours challenges again.
// Matrix: V1-02
func TestTheAuthorizerThatAnswersAChallengeIsShownAgain(t *testing.T) {
	p := cephxAuth(t)
	server := &lateServer{Server: p.ac.Auth}
	p.ac.Auth = server
	x, y := linktest.New()
	accepted := make(chan error, 1)
	go func() {
		a, err := handshake1.Accept(t.Context(), y, p.ac)
		for _, tag := range []wire1.Tag{wire1.TagChallengeAuthorizer, wire1.TagRetrySession, wire1.TagChallengeAuthorizer, wire1.TagReady} {
			if err == nil {
				_, err = a.ReadConnect(t.Context())
			}
			if err == nil {
				_, err = a.Verify(t.Context())
			}
			if err == nil {
				err = a.Reply(t.Context(), session1.Answer{Reply: wire1.Reply{Tag: tag}})
			}
		}
		y.Out.Close()
		accepted <- err
	}()
	c, err := handshake1.Connect(t.Context(), x, p.cc)
	must(t, err)
	for _, tag := range []wire1.Tag{wire1.TagRetrySession, wire1.TagReady} {
		a, err := c.Ask(t.Context(), wire1.Connect{Features: p.cHas, HostType: wire.Client})
		if must(t, err); a.Tag != tag {
			t.Fatalf("answer %v, want %v", a.Tag, tag)
		}
	}
	must(t, <-accepted)
	if got := server.shown; len(got) != 4 || !bytes.Equal(got[1], got[2]) || c.Auth() == nil {
		t.Errorf("%d authorizers: the second is %x, the third %x", len(got), got[1], got[2])
	}
}

func TestConnectorChecksTheAcceptorsAddress(t *testing.T) {
	for said, ok := range map[string]bool{
		"v1:10.0.0.1:6800/77": true, "v1:0.0.0.0:6800/77": true, "v1:10.0.0.1:6800/78": false, "v1:10.0.0.1:6801/77": false,
		"v1:10.0.0.9:6800/77": false, "v1:0.0.0.0:6801/77": false, "v1:0.0.0.0:6800/78": false,
	} {
		own, err := wire.ParseAddr(said)
		must(t, err)
		p := wire1.AcceptorHello{Own: own, Seen: wire.Addr{Type: wire.AddrLegacy, AddrPort: clientAt}}.AppendTo(nil)
		for _, every := range []bool{false, true} { // a nonce of 0 is every nonce
			cc := noneAuth().cc
			if every {
				cc.Target.Nonce = 0
			}
			ok := ok || every && strings.HasSuffix(said, "/78") && strings.Contains(said, "6800")
			_, err = handshake1.Connect(t.Context(), linktest.Scripted(p), cc)
			if ok != (err == nil) || !ok && !errors.Is(err, handshake1.ErrAddress) {
				t.Errorf("%s, any nonce %v: %v", said, every, err)
			}
		}
	}
}

// Only an IP that is not known is learned, from what the acceptor sees.
func TestOnlyTheIPOfAnAddressIsLearned(t *testing.T) {
	for _, c := range []struct{ own, seen, want string }{
		{"v1:10.9.9.9:6811/5", "10.0.0.2:45678", "v1:10.9.9.9:6811/5"}, {"v1:0.0.0.0:6811/5", "10.0.0.2:45678", "v1:10.0.0.2:6811/5"},
		{"v1:[::]:6811/5", "[2001:db8::2]:45678", "v1:[2001:db8::2]:6811/5"}, {"any:-/5", "10.0.0.2:45678", "v1:10.0.0.2:0/5"},
		{"-", "10.0.0.2:45678", "v1:10.0.0.2:0/0"},
	} {
		own, err := wire.ParseAddr(c.own)
		must(t, err)
		p := noneAuth()
		p.cc.Own, p.ac.PeerAddr = own, netip.MustParseAddrPort(c.seen)
		if x, y := p.run(t.Context()); x.err != nil || y.err != nil || x.from.String() != c.want {
			t.Errorf("%s seen as %s: %v, want %s; %v, %v", c.own, c.seen, x.from, c.want, x.err, y.err)
		}
	}
}

func TestAnotherProtocolIsToldAtItsFirstWrongByte(t *testing.T) {
	for _, said := range []string{"ceph v2\n\x10\x00", "GET / HTTP/1.1\r\n", "x"} {
		for _, accept := range []bool{false, true} {
			link, peer := linktest.New()
			must(t, peer.Write(t.Context(), []byte(said))) // and then silence
			p := noneAuth()
			var err error
			if accept {
				_, err = handshake1.Accept(t.Context(), link, p.ac)
			} else {
				_, err = handshake1.Connect(t.Context(), link, p.cc)
			}
			wantError(t, err, handshake.StageBanner, wire.ErrBadBanner)
		}
	}
}

func TestDeadlineEndsASilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		link, _ := linktest.New()
		p := noneAuth()
		_, err := handshake1.Accept(ctx, link, p.ac)
		wantError(t, err, handshake.StageBanner, context.DeadlineExceeded)
	})
}

func TestABusyServerEndsTheConnection(t *testing.T) {
	p := noneAuth()
	p.ac.Auth = &lateServer{Server: p.ac.Auth, refuse: 1, err: auth.ErrBusy}
	x, y := p.run(t.Context())
	if !errors.Is(y.err, auth.ErrBusy) || errors.Is(y.err, handshake.ErrAuth) || !errors.Is(x.err, io.EOF) {
		t.Errorf("acceptor %v, connector %v", y.err, x.err)
	}
}

// V1-08: nothing is taken for what an unknown peer announces.
// Matrix: V1-08
func TestAnnouncedAuthorizersEndTheHandshake(t *testing.T) {
	hello := wire1.ConnectorHello{Own: ownAddr}.AppendTo(nil)
	m := wire1.Connect{HostType: wire.Client, Protocol: 24, AuthMethod: 2, AuthorizerLen: wire1.MaxAuthorizer + 1}
	a, err := handshake1.Accept(t.Context(), linktest.Scripted(m.AppendTo(hello)), noneAuth().ac)
	must(t, err)
	_, err = a.ReadConnect(t.Context())
	wantError(t, err, handshake1.StageConnect, wire.ErrMalformed)
	reply := wire1.Reply{Tag: wire1.TagSeq, AuthorizerLen: wire1.MaxAuthReply + 1}
	p := reply.AppendTo(wire1.AcceptorHello{Own: osdAddr}.AppendTo(nil))
	c, err := handshake1.Connect(t.Context(), linktest.Scripted(p), noneAuth().cc)
	must(t, err)
	_, err = c.Ask(t.Context(), wire1.Connect{})
	wantError(t, err, handshake1.StageConnect, wire.ErrMalformed)
}

func TestAChallengeWithoutAnAuthorizerIsRefused(t *testing.T) {
	p := noneAuth()
	p.cc.PeerType, p.cc.Auth = wire.Mon, nil
	b := wire1.Reply{Tag: wire1.TagChallengeAuthorizer}.AppendTo(wire1.AcceptorHello{Own: osdAddr}.AppendTo(nil))
	c, err := handshake1.Connect(t.Context(), linktest.Scripted(b), p.cc)
	must(t, err)
	_, err = c.Ask(t.Context(), wire1.Connect{})
	wantError(t, err, handshake1.StageConnect, handshake1.ErrUnexpected)
}

// FuzzPeer lets a peer send anything behind a good beginning.
func FuzzPeer(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(true, uint16(len(r.S2C)/2), []byte(r.S2C[len(r.S2C)/2:]))
		f.Add(false, uint16(len(r.C2S)/2), []byte(r.C2S[len(r.C2S)/2:]))
		f.Add(true, uint16(0), []byte(r.S2C))
		f.Add(false, uint16(0), []byte(r.C2S))
	}
	r := recordings(f)[0]
	f.Fuzz(func(t *testing.T, connector bool, keep uint16, data []byte) {
		p := noneAuth()
		good := []byte(r.C2S)
		if connector {
			good = r.S2C
			hello, err := wire1.DecodeAcceptorHello(good[:wire1.AcceptorHelloSize])
			must(t, err)
			p.cc.Target = hello.Own
		}
		link := linktest.Scripted(slices.Concat(good[:int(keep)%(len(good)+1)], data))
		var o outcome
		if connector {
			o = p.connect(t.Context(), link)
		} else {
			o = p.accept(t.Context(), link)
		}
		if o.err == nil && (o.enc == nil || o.dec == nil || o.s.State != session.Ready) {
			t.Fatalf("open without codecs, or in state %v", o.s.State)
		}
	})
}
