package handshake1_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// oneShot is a server whose exchanges take the authorizer "good", and are of no use after
// an error, as auth.ServerExchange says.
type oneShot struct {
	replayServer
	key    []byte
	secret []byte // of a mode that msgr1 has not
	starts *int
}

type oneShotExchange struct {
	s    oneShot
	over bool
}

func (s oneShot) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	*s.starts++
	return &oneShotExchange{s: s}, nil
}

func (x *oneShotExchange) Handle(_ context.Context, p []byte) ([]byte, *auth.Result, error) {
	switch {
	case !x.over && string(p) == "more":
		return []byte("challenge"), nil, nil
	case x.over || string(p) != "good":
		x.over = true
		return nil, nil, errors.New("not good")
	}
	return []byte("proof"), &auth.Result{SessionKey: slices.Clone(x.s.key), ConnectionSecret: x.s.secret}, nil
}

// acceptor is one of an osd behind the addresses, which reads these authorizers, each
// behind a connect message.
func acceptor(t *testing.T, own wire.Addr, server auth.Server, authorizers ...string) (*handshake1.Acceptor, *linktest.End) {
	t.Helper()
	return acceptorOf(t, slices.Repeat([]auth.Method{auth.Cephx}, len(authorizers)), own, server, authorizers...)
}

// acceptorOf is acceptor, whose peer names a method with each authorizer.
func acceptorOf(t *testing.T, methods []auth.Method, own wire.Addr, server auth.Server, authorizers ...string) (*handshake1.Acceptor, *linktest.End) {
	t.Helper()
	p := wire1.ConnectorHello{Own: own}.AppendTo(nil)
	for i, a := range authorizers {
		m := wire1.Connect{HostType: wire.Client, Protocol: 24, AuthMethod: uint32(methods[i]), AuthorizerLen: uint32(len(a))}
		p = append(m.AppendTo(p), a...)
	}
	cfg := noneAuth().ac
	cfg.Auth = server
	link := linktest.Scripted(p)
	a, err := handshake1.Accept(t.Context(), link, cfg)
	must(t, err)
	return a, link
}

// judged is the verdict about the next authorizer.
func judged(t *testing.T, a *handshake1.Acceptor) session1.Authorizer {
	t.Helper()
	_, err := a.ReadConnect(t.Context())
	must(t, err)
	v, err := a.Verify(t.Context())
	must(t, err)
	return v
}

func newOneShot(t *testing.T, key string) oneShot {
	return oneShot{replayServer: replayServer{&replay{t: t}}, key: []byte(key), starts: new(int)}
}

func TestTheIPOfASocketStandsForOneThatIsNotSaid(t *testing.T) {
	for said, want := range map[string]string{
		"v1:0.0.0.0:0/5": "v1:10.0.0.2:0/5", "v1:0.0.0.0:6811/5": "v1:10.0.0.2:6811/5", "v1:10.9.9.9:0/5": "v1:10.9.9.9:0/5",
		"v1:[::]:6811/5": "v1:10.0.0.2:6811/5", "-": "v1:10.0.0.2:0/0",
	} {
		own, err := wire.ParseAddr(said)
		must(t, err)
		if a, _ := acceptor(t, own, nil); a.From().String() != want {
			t.Errorf("%s: from %v, want %s", said, a.From(), want)
		}
	}
	cfg := noneAuth().ac
	cfg.PeerAddr = netip.MustParseAddrPort("[::ffff:10.0.0.7]:4000") // of a dual-stack socket
	a, err := handshake1.Accept(t.Context(), linktest.Scripted(wire1.ConnectorHello{Own: ownAddr}.AppendTo(nil)), cfg)
	must(t, err)
	if got := a.From().String(); got != "v1:10.0.0.7:0/5" {
		t.Errorf("from %s", got)
	}
}

func TestABadAuthorizerIsForgotten(t *testing.T) {
	s := newOneShot(t, "0123456789abcdef")
	s.secret = []byte("of the connection")
	var keys [][]byte
	a, _ := acceptor(t, ownAddr, s, "bad", "good", "good")
	for i, want := range []session1.Authorizer{session1.AuthorizerBad, session1.AuthorizerGood, session1.AuthorizerGood} {
		if got := judged(t, a); got != want {
			t.Errorf("authorizer %d: %v", i, got)
		}
		if res := a.Auth(); res != nil {
			keys = append(keys, res.SessionKey)
		}
	}
	for what, secret := range map[string][]byte{"the first session key": keys[0], "the connection secret": s.secret} {
		if len(bytes.Trim(secret, "\x00")) > 0 {
			t.Errorf("%s is not wiped: %q", what, secret)
		}
	}
	if string(keys[1]) != string(s.key) {
		t.Errorf("the second session key is %q", keys[1])
	}
	if *s.starts != 3 {
		t.Errorf("%d exchanges", *s.starts)
	}
}

// lenient is method none that takes an empty payload, as nothing has to be proved.
type lenient struct{ *none.Server }

func (lenient) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return lenient{}, nil
}

func (lenient) Handle(_ context.Context, p []byte) ([]byte, *auth.Result, error) {
	if len(p) > 0 {
		return nil, nil, errors.New("not empty")
	}
	return nil, &auth.Result{Method: auth.None, Mode: auth.CRC}, nil
}

// secureShot is a oneShot that allows mode secure alone.
type secureShot struct{ oneShot }

func (secureShot) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return []auth.Mode{auth.Secure}, nil
}

// The exchange of one method takes no authorizer of another, and none begins in mode secure alone.
// Matrix: AU-21
func TestTheMethodIsThatOfTheExchangeAndTheModeIsCRC(t *testing.T) {
	const good, bad, more = session1.AuthorizerGood, session1.AuthorizerBad, session1.AuthorizerChallenge
	s := newOneShot(t, "0123456789abcdef")
	for _, c := range []struct {
		server auth.Server
		second auth.Method
		want   [2]session1.Authorizer
	}{{s, auth.Cephx, [2]session1.Authorizer{more, good}}, {s, auth.None, [2]session1.Authorizer{more, bad}}, {secureShot{s}, auth.Cephx, [2]session1.Authorizer{bad, bad}}} {
		a, _ := acceptorOf(t, []auth.Method{auth.Cephx, c.second}, ownAddr, c.server, "more", "good")
		if got := [2]session1.Authorizer{judged(t, a), judged(t, a)}; got != c.want {
			t.Errorf("%T, then method %v: %v, want %v", c.server, c.second, got, c.want)
		}
	}
}

// Real daemons refuse a missing authorizer, unless their service asks for none: so the
// server of method none decides, and no server that has another method alone is asked.
// Matrix: V1-02
func TestTheServerOfMethodNoneJudgesAMissingAuthorizer(t *testing.T) {
	anyone := lenient{none.NewServer(none.ServerConfig{})}
	proof := newOneShot(t, "0123456789abcdef")
	for _, c := range []struct {
		name       string
		server     auth.Server
		method     auth.Method
		authorizer string
		want       session1.Authorizer
	}{
		{"lenient", anyone, 0, "", session1.AuthorizerGood},
		{"lenient, named", anyone, auth.None, "", session1.AuthorizerGood},
		{"lenient, bytes of no method", anyone, 0, "good", session1.AuthorizerBad},
		{"none", none.NewServer(none.ServerConfig{}), 0, "", session1.AuthorizerBad},
		{"cephx", proof, 0, "", session1.AuthorizerBad},
	} {
		a, _ := acceptorOf(t, []auth.Method{c.method}, ownAddr, c.server, c.authorizer)
		if got := judged(t, a); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if *proof.starts != 0 {
		t.Error("a server of another method was asked")
	}
}

func TestAMethodThatProvesNeedsAKey(t *testing.T) {
	a, _ := acceptor(t, ownAddr, newOneShot(t, ""), "good")
	if got := judged(t, a); got != session1.AuthorizerBad || a.Auth() != nil {
		t.Error(got)
	}
	_, err := a.ReadConnect(t.Context())
	wantError(t, err, handshake1.StageConnect, handshake.ErrNoSessionKey)
}

// What belongs to the authorizer goes with a challenge, and with an answer that opens the
// connection, if that answers its message.
func TestAnswersThatHaveAProof(t *testing.T) {
	for tag, proof := range map[wire1.Tag]int{
		wire1.TagReady: 5, wire1.TagSeq: 5, wire1.TagChallengeAuthorizer: 5, wire1.TagRetryGlobal: 0, wire1.TagRetrySession: 0,
		wire1.TagResetSession: 0, wire1.TagWait: 0, wire1.TagFeatures: 0, wire1.TagBadProtoVer: 0, wire1.TagBadAuthorizer: 0,
	} {
		for _, late := range []bool{false, true} {
			a, link := acceptor(t, ownAddr, newOneShot(t, "0123456789abcdef"), "good", "good")
			judged(t, a)
			size := proof
			if late {
				_, err := a.ReadConnect(t.Context())
				must(t, err)
				size = 0
			}
			must(t, a.Reply(t.Context(), session1.Answer{Reply: wire1.Reply{Tag: tag}}))
			p := link.Out.Content()[wire1.AcceptorHelloSize:]
			want := wire1.ReplySize + size
			if tag == wire1.TagSeq {
				want += wire1.SeqSize
			}
			if r, err := wire1.DecodeReply(p[:wire1.ReplySize]); err != nil || len(p) != want || int(r.AuthorizerLen) != size {
				t.Errorf("%v, late %v: %d bytes, %d of a proof, %v", tag, late, len(p), r.AuthorizerLen, err)
			}
		}
	}
}
