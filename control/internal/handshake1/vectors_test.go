package handshake1_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake1"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/session1"
	"github.com/ringmsgr/ringmsgr/control/internal/wire1"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// recording is a handshake between real processes, from the banner to the exchange of
// sequences, and a message of each side behind it.
type recording struct {
	Name        string
	Peer        string   // type of the acceptor
	Features    string   // that both have
	SessionKey  hexBytes `json:"session_key"`
	Authorizers []hexBytes
	Proofs      []hexBytes // of the acceptor: a challenge, and what proves itself
	Message     struct{ C2S, S2C hexBytes }
	C2S, S2C    hexBytes
}

type hexBytes = linktest.Hex

func recordings(t testing.TB) (all []recording) {
	t.Helper()
	linktest.Load(t, "handshakes.json", &all)
	if len(all) != 4 {
		t.Fatalf("%d recordings", len(all))
	}
	return all
}

// features are what the connector had, and what both have.
func (r *recording) features(t testing.TB) (own, both wire.Features) {
	t.Helper()
	m, err := wire1.DecodeConnect(r.C2S[wire1.ConnectorHelloSize:][:wire1.ConnectSize])
	must(t, err)
	both = m.Features
	if r.Features != "" {
		n, err := strconv.ParseUint(r.Features, 0, 64)
		must(t, err)
		both = wire.Features(n)
	}
	return m.Features, both
}

func (r *recording) peerType(t testing.TB) wire.EntityType {
	t.Helper()
	typ, err := wire.ParseEntityType(r.Peer)
	must(t, err)
	return typ
}

func (r *recording) result() *auth.Result { return &auth.Result{SessionKey: bytes.Clone(r.SessionKey)} }

// replay says what one side's method has said, and checks what it hears.
type replay struct {
	t     testing.TB
	r     *recording
	step  int
	wiped int
}

func (x *replay) Wipe() { x.wiped++ }

func (x *replay) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) { return x, nil }

func (x *replay) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	return auth.Cephx, []auth.Mode{auth.Secure, auth.CRC}, x.r.Authorizers[0], nil
}

func (x *replay) BadMethod(context.Context, auth.Method, int32, []auth.Method, []auth.Mode) error {
	x.t.Error("an authorizer was refused")
	return auth.ErrNoMethod
}

func (x *replay) heard(p []byte, want hexBytes) {
	if !bytes.Equal(p, want) {
		x.t.Errorf("heard %x, want %x", p, []byte(want))
	}
	x.step++
}

func (x *replay) ReplyMore(_ context.Context, p []byte) ([]byte, error) {
	x.heard(p, x.r.Proofs[x.step])
	return x.r.Authorizers[x.step], nil
}

func (x *replay) Done(_ context.Context, _ uint64, _ auth.Mode, p []byte) (*auth.Result, error) {
	x.heard(p, x.r.Proofs[x.step])
	return x.r.result(), nil
}

// replayServer is replay for the acceptor.
type replayServer struct{ *replay }

func (s replayServer) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{auth.Cephx}
}

func (s replayServer) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return []auth.Mode{auth.CRC}, nil
}

func (s replayServer) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return s, nil
}

func (s replayServer) Handle(_ context.Context, p []byte) ([]byte, *auth.Result, error) {
	s.heard(p, s.r.Authorizers[s.step])
	proof := s.r.Proofs[s.step-1]
	if s.step == len(s.r.Proofs) {
		return proof, s.r.result(), nil
	}
	return proof, nil, nil
}

// connectorOf makes what the recorded connector was.
func (r *recording) connectorOf(t testing.TB, x auth.Client) (handshake1.ConnectConfig, session1.Session, session.Env) {
	t.Helper()
	acceptor, err := wire1.DecodeAcceptorHello(r.S2C[:wire1.AcceptorHelloSize])
	must(t, err)
	connector, err := wire1.DecodeConnectorHello(r.C2S[:wire1.ConnectorHelloSize])
	must(t, err)
	own, _ := r.features(t)
	peer := r.peerType(t)
	s := session1.New(wire.Client, session.Policy{Lossy: true, Supported: own}, session.Peer{Type: peer, Target: acceptor.Own, Dialled: true}, session.Backoff{})
	return handshake1.ConnectConfig{
		Options: handshake1.Options{EntityType: wire.Client, Own: connector.Own}, Target: acceptor.Own, PeerType: peer, Auth: x,
	}, s, session.Env{Seq: new(session.GlobalSeq)}
}

var limits = frame.DefaultLimits()

// Matrix: V1-01
func TestConnectorRepeatsRecordedHandshakes(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			x := &replay{t: t, r: &r}
			cfg, s, env := r.connectorOf(t, x)
			link := linktest.Scripted(r.S2C)
			c, err := handshake1.Connect(t.Context(), link, cfg)
			must(t, err)
			d := machine{s: s, env: env}
			if err := d.connect(t.Context(), c); err != nil {
				t.Fatal(err, d.said)
			}
			s = d.s
			if got := link.Out.Content(); !bytes.Equal(got, r.C2S) {
				t.Errorf("wrote\n%x\nwant\n%x", got, []byte(r.C2S))
			}
			if c.Own() != cfg.Own || c.SeenAs().AddrPort.Port() == 0 || !s.Policy.Lossy {
				t.Errorf("own %v, seen as %v, lossy %v", c.Own(), c.SeenAs(), s.Policy.Lossy)
			}
			if _, both := r.features(t); s.Features != both {
				t.Errorf("features %v, want %v", s.Features, both)
			}
			enc, dec, err := c.Release(s.Features)
			must(t, err)
			if c.Auth() != nil && (c.Auth().SessionKey != nil || x.wiped == 0) {
				t.Error("secrets were kept")
			}
			if len(r.SessionKey) > 0 {
				r.message(t, enc, r.Message.C2S)
				r.accepts(t, dec, r.Message.S2C)
			}
			for n := range r.S2C {
				cfg, s, env := r.connectorOf(t, &replay{t: t, r: &r})
				c, err := handshake1.Connect(t.Context(), linktest.Scripted(r.S2C[:n]), cfg)
				if err == nil {
					err = (&machine{s: s, env: env}).connect(t.Context(), c)
				}
				brokenOff(t, n, err)
			}
			// Nobody has received anything in the recordings.
			said := bytes.Clone(r.S2C)
			said[len(said)-wire1.SeqSize] = 7
			cfg, s, env = r.connectorOf(t, &replay{t: t, r: &r})
			c, err = handshake1.Connect(t.Context(), linktest.Scripted(said), cfg)
			must(t, err)
			d = machine{s: s, env: env}
			must(t, d.connect(t.Context(), c))
			if text := strings.Join(d.said, "\n"); !strings.Contains(text, "received=7") {
				t.Error(text)
			}
		})
	}
}

// brokenOff checks the error of a side whose peer hangs up behind n bytes.
func brokenOff(t *testing.T, n int, err error) {
	t.Helper()
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the peer hangs up behind %d bytes: %v", n, err)
	}
}

// message encodes a recorded message again, signature and all.
func (r *recording) message(t *testing.T, enc *frame1.Encoder, p []byte) {
	t.Helper()
	m, front, middle, data, _ := r.parts(t, enc.Form(), p)
	if got := enc.AppendMessage(nil, &m, front, middle, data); !bytes.Equal(got, p) {
		t.Errorf("message\n%x\nwant\n%x", got, p)
	}
}

// accepts decodes a recorded message, and refuses one that was changed.
func (r *recording) accepts(t *testing.T, dec *frame1.Decoder, p []byte) {
	t.Helper()
	m, front, middle, data, footer := r.parts(t, dec.Form(), p)
	sums := frame1.SumsOf(front, middle, data)
	if err := dec.Footer(m, footer, sums); err != nil {
		t.Error(err)
	}
	m.Seq++
	if err := dec.Footer(m, footer, sums); (err == nil) == (r.Features == "0x3f01cfbdfffdffff") {
		t.Errorf("another number: %v", err)
	}
}

func (r *recording) parts(t *testing.T, form frame1.Form, p []byte) (m frame1.Header, front, middle, data, footer []byte) {
	t.Helper()
	m, err := frame1.NewDecoder(frame1.Config{Form: form}, nil, limits).Header(p[1:][:form.HeaderSize()])
	must(t, err)
	p = p[1+form.HeaderSize():]
	f, d := int(m.FrontLen), int(m.DataLen)
	return m, p[:f], nil, p[f:][:d], p[f+d:]
}

// Matrix: V1-01
func TestAcceptorRepeatsRecordedHandshakes(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			hello, err := wire1.DecodeAcceptorHello(r.S2C[:wire1.AcceptorHelloSize])
			must(t, err)
			own := r.peerType(t)
			// The number of the answer that opened the connection.
			at := len(r.S2C) - wire1.SeqSize - len(r.lastProof()) - wire1.ReplySize
			last, err := wire1.DecodeReply(r.S2C[at:][:wire1.ReplySize])
			if err != nil || last.Tag != wire1.TagSeq {
				t.Fatal(last, err)
			}
			policy := session.Policy{Lossy: true, Server: true, Supported: wire.FeaturesPacific}
			accept := func(link *linktest.End) (*handshake1.Acceptor, *machine, error) {
				seq := session.GlobalSeq(last.GlobalSeq - 1)
				d := &machine{env: session.Env{Seq: &seq}}
				a, err := handshake1.Accept(t.Context(), link, handshake1.AcceptConfig{
					Options: handshake1.Options{EntityType: own, Own: hello.Own}, PeerAddr: hello.Seen.AddrPort, Auth: replayServer{&replay{t: t, r: &r}},
				})
				if err == nil {
					err = d.accept(t.Context(), a, own, policy)
				}
				return a, d, err
			}
			for n := range r.C2S {
				_, _, err := accept(linktest.Scripted(r.C2S[:n]))
				brokenOff(t, n, err)
			}
			link := linktest.Scripted(r.C2S)
			a, d, err := accept(link)
			if err != nil {
				t.Fatal(err, d.said)
			}
			if got := link.Out.Content(); !bytes.Equal(got, r.S2C) {
				t.Errorf("wrote\n%x\nwant\n%x", got, []byte(r.S2C))
			}
			if a.From().Nonce == 0 || a.From().IsBlank() {
				t.Errorf("from %v", a.From())
			}
			enc, dec, err := a.Release(d.s.Features)
			must(t, err)
			if len(r.SessionKey) > 0 {
				r.accepts(t, dec, r.Message.C2S)
				if r.Features != "0x1f01cfbdff7dffff" { // daemons flag old footers as signed
					r.message(t, enc, r.Message.S2C)
				}
			}
		})
	}
}

func (r *recording) lastProof() []byte {
	if len(r.Proofs) == 0 {
		return nil
	}
	return r.Proofs[len(r.Proofs)-1]
}
