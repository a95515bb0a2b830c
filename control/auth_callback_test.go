package control_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// slow makes calls of authentication wait until the test lets them go on.
type slow struct {
	entered chan struct{}
	release chan struct{}
	obey    bool // goes on when the context is done, too
}

func newSlow(obey bool) *slow {
	return &slow{entered: make(chan struct{}, 16), release: make(chan struct{}), obey: obey}
}

func (s *slow) wait(ctx context.Context) {
	s.entered <- struct{}{}
	var done <-chan struct{}
	if s.obey {
		done = ctx.Done()
	}
	select {
	case <-s.release:
	case <-done:
	}
}

// server is a server whose answer to who says this takes long.
func (s *slow) server(by auth.Server, who string) auth.Server {
	return hookedServer{by, func(ctx context.Context, said []byte, call func() *auth.Result) {
		if bytes.Contains(said, []byte(who)) {
			s.wait(ctx)
		}
		call()
	}}
}

// client is a client that takes long with what peers of a type say last.
func (s *slow) client(by auth.Client, peer wire.EntityType, found func(*auth.Result)) auth.Client {
	return hookedClient{by, func(ctx context.Context, of wire.EntityType, call func() *auth.Result) {
		if of == peer {
			s.wait(ctx)
		}
		found(call())
	}}
}

// happens waits for something that other goroutines bring about.
func happens(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventually(t, deadline(t), what, ok)
}

// An authentication callback that takes 5 s stops nobody but the peer
// that it is about, and what it takes counts against the time of the handshake.
// Matrix: AU-16
func TestASlowAuthServerHoldsUpNobodyElse(t *testing.T) {
	for _, obey := range []bool{true, false} {
		clock, s := stillClock(), newSlow(obey)
		server := newParty(t, control.Config{
			Name: entity(t, "mon.a"), Clock: clock,
			Auth: control.Auth{Server: s.server(none.NewServer(none.ServerConfig{Monitor: true}), "slow")},
		}).bind(t)
		fast := newParty(t, control.Config{Name: entity(t, "client.fast")})
		conn, err := fast.dial(t, server, wire.Mon)
		must(t, err)
		tardy := newParty(t, control.Config{Name: entity(t, "client.slow")})
		connect := func() *control.Conn {
			c := connect(t, tardy.m, server.addr, wire.Mon, control.Once(), control.Anonymous())
			arrives(t, "the callback", s.entered)
			return c
		}
		others := func() {
			t.Helper()
			for range 20 {
				exchange(t, conn, []byte("meanwhile"))
			}
			more, err := fast.dial(t, server, wire.Mon)
			must(t, err)
			more.MarkDown()
		}
		first := connect()
		others()
		clock.pass(5 * time.Second)
		others()
		if st := first.State(); st != control.StateConnecting {
			t.Fatalf("after 5 s: %v, %v", st, first.Err())
		}
		s.release <- struct{}{}
		ctx := deadline(t)
		if err := first.WaitReady(ctx); err != nil {
			t.Fatalf("after 5 s: %v", err)
		}
		second := connect()
		clock.pass(daemonHandshake)
		others()
		if !obey {
			close(s.release) // too late
		}
		arrives(t, "the end of the second", second.Closed())
		if err := second.Err(); errors.Is(err, control.ErrAuth) {
			t.Errorf("a time limit is called a failed authentication: %v", err)
		}
		happens(t, "the failure", func() bool { return statsOf(t, server.m).Counters.AcceptFailures == 1 })
		if n := statsOf(t, server.m).Counters.AuthFailures; n != 0 {
			t.Errorf("%d failed authentications", n)
		}
	}
}

// AU-16, at the connector: its other connections go on, and the handshake ends
// at its deadline, also if the callback takes no notice of that.
// Matrix: AU-16
func TestASlowAuthClientHoldsUpNobodyElse(t *testing.T) {
	for _, obey := range []bool{true, false} {
		clock, s := stillClock(), newSlow(obey)
		mon := newParty(t, control.Config{Name: entity(t, "mon.a")}).bind(t)
		osd := newParty(t, control.Config{Name: entity(t, "osd.0")}).bind(t)
		who := entity(t, "client.admin")
		client := newParty(t, control.Config{Name: who, Clock: clock, Auth: control.Auth{Client: s.client(none.NewClient(who), wire.OSD, func(*auth.Result) {})}})
		conn, err := client.dial(t, mon, wire.Mon)
		must(t, err)
		late := connect(t, client.m, osd.addr, wire.OSD, control.Once())
		arrives(t, "the callback", s.entered)
		for range 20 {
			exchange(t, conn, []byte("meanwhile"))
		}
		clock.pass(daemonHandshake)
		if !obey {
			close(s.release)
		}
		arrives(t, "the end", late.Closed())
		if err := late.Err(); !errors.Is(err, control.ErrHandshakeTimeout) || errors.Is(err, control.ErrAuth) {
			t.Errorf("obey %v: %v", obey, err)
		}
		exchange(t, conn, []byte("and after"))
	}
}

// The result of a callback that comes after its connection was closed is
// ignored: no event, no socket, and the keys in it are gone.
// Matrix: AU-17
func TestALateResultOfAClosedConnectionIsIgnored(t *testing.T) {
	for _, obey := range []bool{true, false} {
		both := []auth.Mode{auth.Secure}
		authClient, authServer := cephxPair(t, both, both)
		var v vault
		late := newSlow(obey)
		server := newParty(t, control.Config{Name: entity(t, "mon.a"), Auth: control.Auth{Server: authServer}}).bind(t)
		var events atomic.Int64
		m := authMessenger(t, control.Config{Name: entity(t, "client.admin"), Auth: control.Auth{Client: late.client(authClient, wire.Mon, v.keep)}}, &control.Dispatcher{
			Connect: func(*control.Conn, int) { events.Add(1) },
			Reset:   func(*control.Conn, bool) { events.Add(1) },
		})
		conn := connect(t, m, server.addr, wire.Mon)
		arrives(t, "the callback", late.entered)
		conn.MarkDown()
		arrives(t, "the end", conn.Closed())
		if !obey { // else the end of its context has it go on
			close(late.release)
		}
		happens(t, "a result", func() bool { sessions, _ := v.all(); return len(sessions) == 1 })
		end(t, m) // waits for the handshake
		if n := events.Load(); n != 0 || conn.State() != control.StateClosing || !errors.Is(conn.Err(), control.ErrMarkedDown) {
			t.Errorf("obey %v: %d events, %v, %v", obey, n, conn.State(), conn.Err())
		}
		wantWiped(t, &v)
		happens(t, "the server's end of it", func() bool { st, err := server.m.Stats(); return err == nil && st.Open+st.HalfOpen == 0 })
	}
}

// The caller learns whether the authentication or the network failed, from
// the error of the wait, in the reset event and in the counters.
// Matrix: AU-25
func TestFailedAuthenticationIsToldFromAFailedNetwork(t *testing.T) {
	crc, secure := []auth.Mode{auth.CRC}, []auth.Mode{auth.Secure}
	admin, nobody := entity(t, "client.admin"), entity(t, "client.nobody")
	good, server := cephxPair(t, crc, crc)
	needsSecure, secureServer := cephxPair(t, secure, secure)
	withKey := func(name wire.EntityName) auth.Client {
		key, err := cephx.NewKey(cephx.AES, nil, time.Now())
		must(t, err)
		c, err := cephx.NewClient(cephx.ClientConfig{Name: name, Key: key, Modes: func(wire.EntityType) []auth.Mode { return crc }})
		must(t, err)
		return c
	}
	for _, c := range []struct {
		name     string
		client   auth.Client
		server   auth.Server    // nil: nobody listens
		stop     nodetest.Point // at which the server hangs up; zero: nowhere
		peer     wire.EntityType
		want     bool
		also     error
		accepted uint64 // failed authentications that the server counts
	}{
		{"wrong key", withKey(admin), server, nodetest.Point{}, wire.Mon, true, &auth.Refused{Errno: auth.EACCES}, 1},
		{"unknown entity", withKey(nobody), server, nodetest.Point{}, wire.Mon, true, &auth.Refused{Errno: auth.EACCES}, 1},
		{"no method in common", none.NewClient(admin), server, nodetest.Point{}, wire.Mon, true, auth.ErrNoMethod, 1},
		{"no mode in common", needsSecure, server, nodetest.Point{}, wire.Mon, true, auth.ErrNoMode, 1},
		{"no ticket", withKey(admin), secureServer, nodetest.Point{}, wire.OSD, true, cephx.ErrNoTicket, 0},
		{"nobody there", good, nil, nodetest.Point{}, wire.Mon, false, nil, 0},
		{"cut before the banner", good, server, nodetest.SocketAccepted(), wire.Mon, false, nil, 0},
		{"cut before the request", good, server, nodetest.Read(frame.TagAuthRequest), wire.Mon, false, nil, 0},
		{"cut before the proof", good, server, nodetest.Read(frame.TagAuthRequestMore), wire.Mon, false, nil, 0},
		{"cut before the end", good, server, nodetest.Write(frame.TagAuthDone), wire.Mon, false, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := "mon.a"
			if c.peer == wire.OSD {
				own = "osd.0"
			}
			stops := nodetest.NewProbe()
			stops.Arm(c.stop, 1, nodetest.Fault())
			peer := newParty(t, control.Config{Name: entity(t, own), Auth: control.Auth{Server: c.server}, Diagnostics: control.Diagnostics{Probe: stops}}).bind(t)
			if c.server == nil {
				end(t, peer.m)
			}
			reset := make(chan error, 1)
			m := authMessenger(t, control.Config{Name: admin, Auth: control.Auth{Client: c.client}}, &control.Dispatcher{
				Reset: func(conn *control.Conn, _ bool) { reset <- conn.Err() },
			})
			conn := connect(t, m, peer.addr, c.peer, control.Once())
			ctx := deadline(t)
			told := map[string]error{"wait": conn.WaitReady(ctx), "reset event": arrives(t, "the reset event", reset)}
			for what, err := range told {
				if err == nil || errors.Is(err, control.ErrAuth) != c.want || c.also != nil && !errors.Is(err, c.also) || (control.StageOf(err) == control.StageConnect) != (c.server == nil) {
					t.Errorf("%s: %v", what, err)
				}
			}
			want := uint64(0)
			if c.want {
				want = 1
			}
			if st, _ := conn.Stats(); st.Counters.AuthFailures != want || st.Counters.Faults != 1 {
				t.Errorf("counted %+v", st.Counters)
			}
			if c.server != nil {
				happens(t, "the server's failure", func() bool { return statsOf(t, peer.m).Counters.AcceptFailures == 1 })
				if n := statsOf(t, peer.m).Counters.AuthFailures; n != c.accepted {
					t.Errorf("the server counts %d", n)
				}
			}
		})
	}
}

// The method is changed from cephx to none and back while the messenger
// runs. Connections that are there stay as they are; new ones, and new TCP
// connections of old sessions, follow.
// Matrix: AU-22
func TestAuthCanBeReplacedAtRunTime(t *testing.T) {
	modes := []auth.Mode{auth.CRC}
	keyed, keyedServer := cephxPair(t, modes, modes)
	admin := entity(t, "client.admin")
	unkeyed, unkeyedServer := none.NewClient(admin), none.NewServer(none.ServerConfig{Monitor: true})
	lossless, stateful, cuts := control.LosslessClient(), control.StatefulServer(), nodetest.NewProbe()
	server := newParty(t, control.Config{Name: entity(t, "mon.a"), Default: &stateful, Auth: control.Auth{Server: keyedServer}}).bind(t)
	// Each is a process of its own: two sessions of one have the same address.
	another := func(by auth.Client, p probe.Probe) *party {
		return newParty(t, control.Config{Name: admin, Default: &lossless, Auth: control.Auth{Client: by}, Diagnostics: control.Diagnostics{Probe: p}})
	}
	calm, shaky := another(keyed, nil), another(keyed, cuts)
	wantMethod := func(c *control.Conn, m auth.Method) {
		t.Helper()
		exchange(t, c, []byte("still there"))
		if i, res := c.Info(), c.Auth(); i.Auth != m || res.Method != m {
			t.Errorf("authenticated by %v, %+v; want %v", i.Auth, res, m)
		}
	}
	first, err := calm.dial(t, server, wire.Mon)
	must(t, err)
	session := connect(t, shaky.m, server.addr, wire.Mon)
	for _, c := range []struct {
		client auth.Client
		server auth.Server
		now    auth.Method
		before auth.Method
	}{{unkeyed, unkeyedServer, auth.None, auth.Cephx}, {keyed, keyedServer, auth.Cephx, auth.None}} {
		wantMethod(first, auth.Cephx)
		wantMethod(session, c.before)
		// The server alone: who still comes with the old method is refused.
		server.m.SetAuth(nil, c.server)
		old := another(keyed, nil)
		if c.before == auth.None {
			old.m.SetAuth(unkeyed, nil)
		}
		if _, err := old.dial(t, server, wire.Mon); !errors.Is(err, auth.ErrNoMethod) || !errors.Is(err, control.ErrAuth) {
			t.Errorf("%v to a server that has %v: %v", c.before, c.now, err)
		}
		wantMethod(first, auth.Cephx)
		wantMethod(session, c.before)
		old.m.SetAuth(c.client, nil)
		next, err := old.dial(t, server, wire.Mon)
		must(t, err)
		wantMethod(next, c.now)
		shaky.m.SetAuth(c.client, nil)
		wantMethod(session, c.before)
		cuts.ArmNext(nodetest.Write(frame.TagMessage), nodetest.Fault())
		wantMethod(session, c.now) // by another TCP connection, and nothing was lost
		wantMethod(first, auth.Cephx)
	}
}

// call opens a TCP connection to a party.
func (e *party) call(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", e.addr.AddrPort.String(), patience)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// A peer that can never do is tried once, also by a lossless connection,
// and the reset event comes.
// Matrix: HS-05, HS-09, HI-25, AU-04
func TestAPeerThatCanNeverDoIsTriedOnce(t *testing.T) {
	banner := wire2.Banner{Supported: 1 | 1<<63, Required: 1 << 63}.AppendTo(nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	calls := make(chan struct{}, 100)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			calls <- struct{}{}
			_, _ = c.Write(banner)
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	strange := wire.Addr{Type: wire.AddrMsgr2, AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}
	mon := newParty(t, control.Config{Name: entity(t, "mon.a")}).bind(t)
	_, keyed := cephxPair(t, []auth.Mode{auth.CRC}, []auth.Mode{auth.CRC})
	strict := newParty(t, control.Config{Name: entity(t, "mon.b"), Auth: control.Auth{Server: keyed}}).bind(t)
	policy := control.LosslessClient()
	for _, c := range []struct {
		name string
		to   wire.Addr
		peer wire.EntityType
		want error
	}{{"features", strange, wire.Mon, handshake.ErrFeatures}, {"type", mon.addr, wire.OSD, handshake.ErrPeerType}, {"method", strict.addr, wire.Mon, auth.ErrNoMethod}} {
		reset := make(chan error, 9)
		m := authMessenger(t, control.Config{
			Name: entity(t, "client.admin"), Default: &policy, Timeouts: control.Timeouts{InitialBackoff: time.Microsecond, MaxBackoff: time.Microsecond},
		}, &control.Dispatcher{Reset: func(c *control.Conn, _ bool) { reset <- c.Err() }})
		conn := connect(t, m, c.to, c.peer)
		arrives(t, "the end of the connection", conn.Closed())
		if err := <-reset; !errors.Is(err, c.want) || errors.Is(err, control.ErrAuth) != (c.name == "method") || len(reset) > 0 {
			t.Errorf("%s: reset with %v, and %d more", c.name, err, len(reset))
		}
		if st, _ := conn.Stats(); st.Counters.Attempts != 1 {
			t.Errorf("%s: %d attempts", c.name, st.Counters.Attempts)
		}
	}
	if n := statsOf(t, strict.m).Counters.Accepted; n != 1 {
		t.Errorf("who refuses was called %d times", n)
	}
	if n := len(calls); n != 1 {
		t.Errorf("the strange peer was called %d times", n)
	}
}

// Matrix: HS-10, PO-14
func TestAnUnknownTypeOfPeerHasTheDefaultPolicy(t *testing.T) {
	stateful := control.StatefulServer()
	server := newParty(t, control.Config{
		Name: entity(t, "mon.a"), Default: &stateful, Policies: map[wire.EntityType]control.Policy{wire.Client: control.StatelessServer()},
	}).bind(t)
	lossless := control.LosslessClient()
	for _, c := range []struct {
		typ   wire.EntityType
		lossy bool
	}{{wire.Client, true}, {0x77, false}, {wire.OSD, false}} {
		client := newParty(t, control.Config{Name: wire.EntityName{Type: c.typ, ID: "1"}, Default: &lossless})
		conn, err := client.dial(t, server, wire.Mon)
		must(t, err)
		if i := conn.Info(); i.Lossy != c.lossy {
			t.Errorf("type %#x: lossy %v", uint8(c.typ), i.Lossy)
		}
	}
}

// dribble writes one byte at a time.
type dribble struct{ net.Conn }

func (d dribble) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		_, err = d.Conn.Write(p[n : n+1])
		n++
	}
	return n, err
}

// No timer has to run out for a handshake that comes byte by byte, with a message behind it. The
// features of the connection are those of both.
// Matrix: HS-15, HS-22
func TestAHandshakeThatComesByteByByteSucceeds(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		server := nodeOf(t, v, "osd.1", "SFS", 1, stillClock().of)
		conn, err := net.Dial("tcp", server.Addr.AddrPort.String())
		must(t, err)
		p := msgrtest.PeerOn(ctx, msgrtest.PeerConfig{Name: osd("2"), Number: 2, Addr: peerAddr(2), Rev0: v.rev0}, dribble{conn}, server.Addr)
		defer p.Close()
		p.Handshake()
		ident := p.ClientIdent(7, 1)
		ident.Supported &^= 1
		p.SendPayload(frame.TagClientIdent, ident)
		p.ExpectServerIdent()
		p.SendMessage(frame.MessageHeader{Seq: 1, TID: 1}, []byte("front"), nil, bytes.Repeat([]byte("data"), 50))
		must(t, p.Err())
		receives(t, ctx, server, 1)
		if got := first(t, ctx, server).Info().Features; got&^ident.Supported != 0 || got == 0 {
			t.Errorf("features %v, the peer has %v", got, ident.Supported)
		}
	})
}

// dial1 is a socket behind the addresses of msgr1.
func (e party) dial1(t *testing.T) net.Conn {
	t.Helper()
	own := wire.Addr{Type: wire.AddrLegacy, Nonce: 9, AddrPort: netip.MustParseAddrPort("127.0.0.1:7")}
	c := e.call(t)
	_, err := c.Write(wire1.ConnectorHello{Own: own}.AppendTo(nil))
	must(t, err)
	_, err = io.ReadFull(c, make([]byte, wire1.AcceptorHelloSize))
	must(t, err)
	return c
}

// ask1 shows a connect message with an authorizer, and returns the answer; 0: the socket was closed.
func ask1(t *testing.T, c net.Conn, ask wire1.Connect, authorizer []byte) (tag wire1.Tag, proof []byte) {
	t.Helper()
	ask.GlobalSeq, ask.Protocol, ask.AuthorizerLen = 1, wire1.Protocol(ask.HostType, wire.OSD), uint32(len(authorizer))
	_, err := c.Write(append(ask.AppendTo(nil), authorizer...))
	must(t, err)
	p := make([]byte, wire1.ReplySize)
	if _, err = io.ReadFull(c, p); err != nil {
		return 0, nil
	}
	r, err := wire1.DecodeReply(p)
	must(t, err)
	proof = make([]byte, r.AuthorizerLen)
	_, err = io.ReadFull(c, proof)
	must(t, err)
	return r.Tag, proof
}

// The authorizer of a peer that is refused for its features, as it knows no challenge, is not judged:
// somebody else may have shown it before.
func TestMsgr1JudgesNoAuthorizerOfAPeerThatKnowsNoChallenge(t *testing.T) {
	var shown atomic.Int32
	server := hookedServer{(&nodetest.Proof{Modes: crcOnly}).Server(), func(_ context.Context, _ []byte, call func() *auth.Result) {
		shown.Add(1)
		call()
	}}
	m := authMessenger(t, control.Config{Name: entity(t, "osd.1"), Auth: control.Auth{Server: server}}, echoAll())
	e := party{addr: bind(t, m, v2(loopback(0).Addr(), 0).WithType(wire.AddrLegacy))[0]}
	for _, features := range []wire.Features{wire.FeaturesPacific &^ wire1.FeatureCephxV2, wire.FeaturesPacific} {
		tag, _ := ask1(t, e.dial1(t), wire1.Connect{Features: features, HostType: wire.Client, AuthMethod: uint32(auth.Cephx)}, make([]byte, 100))
		want, judged := wire1.TagFeatures, int32(0)
		if features.Has(wire1.FeatureCephxV2) {
			want, judged = wire1.TagChallengeAuthorizer, 1
		}
		if n := shown.Load(); tag != want || n != judged {
			t.Errorf("features %v: %v, want %v; %d authorizers were judged", features, tag, want, n)
		}
	}
}

// Matrix: HI-12
func TestNobodyActsAsADaemonOfMsgr1WithoutProof(t *testing.T) {
	m := authMessenger(t, control.Config{Name: entity(t, "osd.1")}, echoAll())
	e := party{addr: bind(t, m, v2(loopback(0).Addr(), 0).WithType(wire.AddrLegacy))[0]}
	for _, c := range []struct {
		claims wire.EntityType
		says   string
		want   wire1.Tag
	}{
		{wire.OSD, "client.admin", 0}, {wire.Mon, "osd.2", 0}, {wire.Client, "mgr.x", wire1.TagSeq}, {wire.OSD, "osd.2", wire1.TagSeq},
	} {
		authorizer := append(entity(t, c.says).AppendTo([]byte{1}), make([]byte, 8)...)
		ask := wire1.Connect{Features: wire.FeaturesPacific, HostType: c.claims, AuthMethod: uint32(auth.None)}
		if tag, _ := ask1(t, e.dial1(t), ask, authorizer); tag != c.want {
			t.Errorf("%+v: %v", c, tag)
		}
	}
}

// Somebody on the way who has a key shows it once the peer has proven its name.
// Matrix: AU-12
func TestTheNameOfASocketOfMsgr1CannotChange(t *testing.T) {
	policy := control.LosslessPeer()
	cfg := control.Config{Name: entity(t, "osd.1"), Default: &policy}
	cfg.Auth.Server = (&nodetest.Proof{Modes: crcOnly}).Server()
	m := authMessenger(t, cfg, echoAll())
	c := party{addr: bind(t, m, v2(loopback(0).Addr(), 0).WithType(wire.AddrLegacy))[0]}.dial1(t)
	ask := wire1.Connect{Features: wire.FeaturesPacific, HostType: wire.OSD, ConnectSeq: 7, AuthMethod: uint32(auth.Cephx)}
	for i, one := range []struct {
		says string
		want wire1.Tag
	}{{"osd.2", wire1.TagResetSession}, {"osd.2", wire1.TagResetSession}, {"osd.3", 0}} {
		tag, challenge := ask1(t, c, ask, entity(t, one.says).AppendTo(nil))
		if tag != wire1.TagChallengeAuthorizer {
			t.Fatalf("authorizer %d: %v", i, tag)
		}
		if tag, _ = ask1(t, c, ask, nodetest.ProofOf(nodetest.ProofKey(entity(t, one.says), challenge))); tag != one.want {
			t.Errorf("proof %d: %v, want %v", i, tag, one.want)
		}
	}
}
