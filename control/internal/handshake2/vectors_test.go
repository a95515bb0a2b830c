package handshake2

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// recording is one TCP connection recorded with real processes, up to the first message.
type recording struct {
	name       string
	Revision   frame.Revision
	Mode       auth.Mode
	SessionKey hexBytes `json:"session_key"`
	AESKey     hexBytes `json:"aes_key"`
	NonceS2C   hexBytes `json:"nonce_s2c"`
	NonceC2S   hexBytes `json:"nonce_c2s"`
	C2S, S2C   hexBytes
	Frames     []recordedFrame
}

type recordedFrame struct {
	Dir          string
	Offset, Size int
	Tag          frame.Tag
	Payload      hexBytes
}

type hexBytes = linktest.Hex

func recordings(t testing.TB) []*recording {
	t.Helper()
	byName := map[string]*recording{}
	linktest.Load(t, "handshakes.json", &byName)
	var all []*recording
	for name, r := range byName {
		r.name = name
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *recording) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	if len(all) < 14 {
		t.Fatalf("%d recordings", len(all))
	}
	return all
}

func (r *recording) payloads(dir string, tag frame.Tag) (out [][]byte) {
	for _, f := range r.Frames {
		if f.Dir == dir && f.Tag == tag {
			out = append(out, f.Payload)
		}
	}
	return out
}

func (r *recording) hello(t testing.TB, dir string) wire2.Hello {
	t.Helper()
	h, err := wire2.DecodeHello(r.payloads(dir, frame.TagHello)[0])
	must(t, err)
	return h
}

func (r *recording) requests(t testing.TB) (out []wire2.AuthRequest) {
	t.Helper()
	for _, p := range r.payloads("c2s", frame.TagAuthRequest) {
		q, err := wire2.DecodeAuthRequest(p)
		must(t, err)
		out = append(out, q)
	}
	return out
}

// split cuts a direction behind AUTH_SIGNATURE and returns the frames behind it.
func (r *recording) split(dir string) (head, tail []byte, after []recordedFrame) {
	all, signed := []byte(r.C2S), false
	if dir == "s2c" {
		all = r.S2C
	}
	for _, f := range r.Frames {
		if f.Dir == dir && signed {
			after = append(after, f)
		}
		if f.Dir == dir && f.Tag == frame.TagAuthSignature {
			head, tail, signed = all[:f.Offset+f.Size], all[f.Offset+f.Size:], true
		}
	}
	return head, tail, after
}

// result makes the outcome that the recorded processes had, in memory of its own.
func (r *recording) result(globalID uint64) *auth.Result {
	res := &auth.Result{GlobalID: globalID, SessionKey: bytes.Clone(r.SessionKey)}
	if len(r.AESKey) > 0 {
		res.ConnectionSecret = slices.Concat(r.AESKey, r.NonceS2C, r.NonceC2S, make([]byte, 24))
	}
	return res
}

func (r *recording) options(t testing.TB, dir string) Options {
	o := Options{EntityType: r.hello(t, dir).EntityType}
	banner := r.C2S
	if dir == "s2c" {
		banner = r.S2C
	}
	b, err := wire2.DecodeBanner(banner[wire2.BannerPrefixSize:])
	must(t, err)
	o.Rev0Only = b.Supported&wire.BannerRevision1 == 0
	return o
}

func (r *recording) connectConfig(t testing.TB) ConnectConfig {
	cfg := ConnectConfig{Options: r.options(t, "c2s"), Target: r.hello(t, "c2s").PeerAddr, PeerType: r.hello(t, "s2c").EntityType}
	cfg.Auth = &replayClient{t: t, r: r}
	if q := r.requests(t)[0]; q.Method == uint32(auth.None) {
		rd := wire.NewReader(q.Payload[1:])
		client := none.NewClient(rd.EntityName())
		client.SetGlobalID(rd.U64())
		cfg.Auth = client
	}
	return cfg
}

func (r *recording) acceptConfig(t testing.TB) AcceptConfig {
	cfg := AcceptConfig{Options: r.options(t, "s2c"), PeerAddr: r.hello(t, "s2c").PeerAddr.AddrPort}
	done, err := wire2.DecodeAuthDone(r.payloads("s2c", frame.TagAuthDone)[0])
	must(t, err)
	if len(r.SessionKey) > 0 {
		cfg.Auth = &replayServer{keyedServer: keyedServer{newKeyed(bothMode...)}, t: t, r: r, done: done}
		return cfg
	}
	cfg.Auth = none.NewServer(none.ServerConfig{
		Monitor:        cfg.EntityType == wire.Mon,
		AssignGlobalID: func(context.Context, wire.EntityName, uint64) (uint64, error) { return done.GlobalID, nil },
	})
	return cfg
}

// replayClient says what the recorded connector said, and checks what it hears.
type replayClient struct {
	t              testing.TB
	r              *recording
	requests, more int
	wiped          int
}

func (c *replayClient) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) {
	return c, nil
}

func (c *replayClient) Wipe() { c.wiped++ }

func (c *replayClient) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	q := c.r.requests(c.t)[c.requests]
	c.requests++
	return auth.Method(q.Method), values[auth.Mode](q.PreferredModes), q.Payload, nil
}

func (c *replayClient) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	if got := fmt.Sprint(m, result, methods, modes); got != "cephx -95 [none] [secure crc]" {
		c.t.Errorf("bad method: %s", got)
	}
	return nil
}

func (c *replayClient) ReplyMore(_ context.Context, p []byte) ([]byte, error) {
	want, err := wire2.DecodeAuthMore(c.r.payloads("s2c", frame.TagAuthReplyMore)[c.more])
	if err != nil || !bytes.Equal(p, want.Payload) {
		c.t.Errorf("reply more %x, want %x, %v", p, want.Payload, err)
	}
	answer, err := wire2.DecodeAuthMore(c.r.payloads("c2s", frame.TagAuthRequestMore)[c.more])
	c.more++
	return answer.Payload, err
}

func (c *replayClient) Done(_ context.Context, id uint64, mode auth.Mode, p []byte) (*auth.Result, error) {
	want, err := wire2.DecodeAuthDone(c.r.payloads("s2c", frame.TagAuthDone)[0])
	if err != nil || !bytes.Equal(p, want.Payload) || id != want.GlobalID || mode != auth.Mode(want.Mode) {
		c.t.Errorf("done %d %v %x, want %+v, %v", id, mode, p, want, err)
	}
	return c.r.result(id), nil
}

// replayServer says what the recorded acceptor said, and checks what it hears.
type replayServer struct {
	keyedServer
	t    testing.TB
	r    *recording
	done wire2.AuthDone
}

func (s *replayServer) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return &replayServerExchange{replayServer: s}, nil
}

type replayServerExchange struct {
	*replayServer
	round int
}

func (x *replayServerExchange) Handle(_ context.Context, p []byte) ([]byte, *auth.Result, error) {
	want := x.r.requests(x.t)[0].Payload
	if x.round > 0 {
		more, err := wire2.DecodeAuthMore(x.r.payloads("c2s", frame.TagAuthRequestMore)[x.round-1])
		if err != nil {
			return nil, nil, err
		}
		want = more.Payload
	}
	if !bytes.Equal(p, want) {
		x.t.Errorf("round %d: %x, want %x", x.round, p, want)
	}
	replies := x.r.payloads("s2c", frame.TagAuthReplyMore)
	if x.round == len(replies) {
		return x.done.Payload, x.r.result(x.done.GlobalID), nil
	}
	more, err := wire2.DecodeAuthMore(replies[x.round])
	x.round++
	return more.Payload, nil, err
}

// goesOn verifies that the stream goes on exactly where the handshake ended: what is
// unread is untouched, it decodes, and what the other side wrote encodes identically.
func (r *recording) goesOn(t *testing.T, link *end, s *Stream, rx, tx string) {
	t.Helper()
	_, rxTail, rxFrames := r.split(rx)
	txHead, txTail, txFrames := r.split(tx)
	if got := link.In.Content(); !bytes.Equal(got, rxTail) {
		t.Fatalf("%d bytes are left on the link, want %d", len(got), len(rxTail))
	}
	if got := link.Out.Content(); !bytes.Equal(got, txHead) {
		t.Fatalf("wrote\n%x\nwant\n%x", got, txHead)
	}
	for _, f := range rxFrames {
		tag, p, err := s.ReadFrame(t.Context())
		if err != nil || tag != f.Tag || !bytes.Equal(p, f.Payload) {
			t.Fatalf("read %v %x, %v; want %v %x", tag, p, err, f.Tag, f.Payload)
		}
	}
	for _, f := range txFrames {
		must(t, s.WriteFrame(t.Context(), f.Tag, f.Payload))
	}
	if got := link.Out.Content(); !bytes.Equal(got, slices.Concat(txHead, txTail)) {
		t.Errorf("after the handshake wrote\n%x\nwant\n%x", got[len(txHead):], txTail)
	}
}

// Matrix: AU-01, IN-06
func TestConnectorRepeatsRecordedHandshakes(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			link := linktest.Scripted(r.S2C)
			cfg := r.connectConfig(t)
			s, peer, err := Connect(t.Context(), link, cfg)
			must(t, err)
			hello := r.hello(t, "s2c")
			if peer.EntityType != hello.EntityType || peer.SeenAs != hello.PeerAddr || peer.Revision != r.Revision || peer.Mode != r.Mode {
				t.Errorf("peer %+v", peer)
			}
			if peer.Auth.SessionKey != nil || peer.Auth.ConnectionSecret != nil {
				t.Error("secrets were kept")
			}
			if c, ok := cfg.Auth.(*replayClient); ok && c.wiped != 1 {
				t.Errorf("exchange was wiped %d times", c.wiped)
			}
			r.goesOn(t, link, s, "s2c", "c2s")
		})
	}
}

// All that the connector has said is there from the start, with the frames of its session.
// Matrix: AU-01, HS-14, IN-06
func TestAcceptorRepeatsRecordedHandshakes(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			link := linktest.Scripted(r.C2S)
			s, peer, err := Accept(t.Context(), link, r.acceptConfig(t))
			must(t, err)
			hello := r.hello(t, "c2s")
			if peer.EntityType != hello.EntityType || peer.Target != hello.PeerAddr || peer.Revision != r.Revision || peer.Mode != r.Mode {
				t.Errorf("peer %+v", peer)
			}
			r.goesOn(t, link, s, "c2s", "s2c")
		})
	}
}
