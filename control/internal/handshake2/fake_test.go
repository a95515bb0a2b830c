package handshake2

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// keyed is a method with a session key and a connection secret, for both sides. It takes
// as many rounds as it is told.
type keyed struct {
	modes    []auth.Mode // offered by the client, allowed by the server
	rounds   int
	secret   int   // length of the connection secret
	key      byte  // content of the session key; 0 makes none
	refuse   error // what the server says to everything
	startErr error
	moreErr  error // what the client says to a round
	doneErr  error // what the client says to AUTH_DONE, or the server beside its result
	retries  int   // how often the client tries again after AUTH_BAD_METHOD
	also     []auth.Method
	results  *[]int32
	wiped    *atomic.Int32
	gave     *given // the last result
}

// given is a result that its receiver wipes, and what was in it.
type given struct {
	*auth.Result
	key, secret []byte
}

// isWiped says whether nothing is left of a key and of the secret.
func (g *given) isWiped() bool {
	return len(g.key) > 0 && len(bytes.Trim(g.key, "\x00")) == 0 && len(bytes.Trim(g.secret, "\x00")) == 0 && g.SessionKey == nil
}

func newKeyed(modes ...auth.Mode) keyed {
	return keyed{modes: modes, rounds: 1, secret: 64, key: 7, results: new([]int32), wiped: new(atomic.Int32), gave: new(given)}
}

func (k keyed) result(id uint64) *auth.Result {
	res := &auth.Result{GlobalID: id, ConnectionSecret: bytes.Repeat([]byte{9}, k.secret)}
	if k.key != 0 {
		res.SessionKey = bytes.Repeat([]byte{k.key}, 16)
	}
	*k.gave = given{res, res.SessionKey, res.ConnectionSecret}
	return res
}

type keyedClient struct{ keyed }

type keyedClientExchange struct{ keyed }

func (c keyedClient) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) {
	return &keyedClientExchange{c.keyed}, c.startErr
}

func (x *keyedClientExchange) Wipe() { x.wiped.Add(1) }

func (x *keyedClientExchange) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	return auth.Cephx, x.modes, []byte("request"), nil
}

func (x *keyedClientExchange) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	*x.results = append(*x.results, result)
	if x.retries--; x.retries >= 0 {
		return nil
	}
	return auth.BadMethod(m, result, methods, modes)
}

func (x *keyedClientExchange) ReplyMore(_ context.Context, p []byte) ([]byte, error) {
	return append([]byte("answer to "), p...), x.moreErr
}

func (x *keyedClientExchange) Done(_ context.Context, id uint64, _ auth.Mode, _ []byte) (*auth.Result, error) {
	return x.result(id), x.doneErr
}

type keyedServer struct{ keyed }

type keyedServerExchange struct{ keyed }

func (s keyedServer) Methods(context.Context, wire.EntityType) []auth.Method {
	return append([]auth.Method{auth.Cephx}, s.also...)
}

func (s keyedServer) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return s.modes, s.modes
}

func (s keyedServer) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return &keyedServerExchange{s.keyed}, s.startErr
}

func (x *keyedServerExchange) Wipe() { x.wiped.Add(1) }

func (x *keyedServerExchange) Handle(_ context.Context, p []byte) ([]byte, *auth.Result, error) {
	if x.refuse != nil {
		return nil, nil, x.refuse
	}
	if x.rounds--; x.rounds >= 0 {
		return []byte("challenge"), nil, nil
	}
	if x.keyed.rounds < -1 || !bytes.HasPrefix(p, []byte("answer")) && !bytes.HasPrefix(p, []byte("request")) {
		return nil, nil, errors.New("out of step")
	}
	return []byte("ticket"), x.result(4242), x.doneErr
}

var (
	target   = wire.Addr{Type: wire.AddrMsgr2, Nonce: 77, AddrPort: netip.MustParseAddrPort("10.0.0.1:6800")}
	clientAt = netip.MustParseAddrPort("10.0.0.2:45678")
	bothMode = []auth.Mode{auth.Secure, auth.CRC}
)

// noneConfigs are a client and a monitor with method none.
func noneConfigs() (ConnectConfig, AcceptConfig) {
	return ConnectConfig{
			Options: Options{EntityType: wire.Client}, Target: target, PeerType: wire.Mon,
			Auth: none.NewClient(wire.EntityName{Type: wire.Client, ID: "admin"}),
		}, AcceptConfig{
			Options: Options{EntityType: wire.Mon}, PeerAddr: clientAt,
			Auth: none.NewServer(none.ServerConfig{Monitor: true}),
		}
}

// keyedConfigs are a client and an OSD with keys.
func keyedConfigs(c, s keyed) (ConnectConfig, AcceptConfig) {
	return ConnectConfig{
			Options: Options{EntityType: wire.Client}, Target: target, PeerType: wire.OSD, Auth: keyedClient{c},
		}, AcceptConfig{
			Options: Options{EntityType: wire.OSD}, PeerAddr: clientAt, Auth: keyedServer{s},
		}
}

func newStream(link handshake.Link) *Stream {
	s := new(Stream)
	s.begin(link, nil)
	return s
}

// capture runs a handshake that works and returns what each side has written.
func capture(t testing.TB, cc ConnectConfig, ac AcceptConfig) (c2s, s2c []byte) {
	t.Helper()
	x, y := writesOf(t, cc, ac)
	return slices.Concat(x...), slices.Concat(y...)
}

// writesOf is capture, write by write: the banner and single frames.
func writesOf(t testing.TB, cc ConnectConfig, ac AcceptConfig) (c2s, s2c [][]byte) {
	t.Helper()
	c, s := linktest.New()
	c.Tamper, s.Tamper = noting(&c2s, nil), noting(&s2c, nil)
	x, y := both(t, context.Background(), c, s, cc, ac)
	must(t, errors.Join(x.err, y.err))
	return c2s, s2c
}

// noting keeps each write of an end, and has it changed, unless change is nil.
func noting(writes *[][]byte, change func(n int, p []byte) []byte) func(int, []byte) []byte {
	return func(_ int, p []byte) []byte {
		*writes = append(*writes, bytes.Clone(p))
		if change == nil {
			return p
		}
		return change(len(*writes)-1, p)
	}
}

// collecting keeps all that an end writes.
func collecting(all *[]byte) func(int, []byte) []byte {
	return func(_ int, p []byte) []byte {
		*all = append(*all, p...)
		return p
	}
}

// role is a side of a handshake, and what the other one writes to it if all is well.
type role struct {
	name   string
	writes [][]byte // the banner and single frames
	peer   []byte   // all of them
	run    func(ctx context.Context, l handshake.Link) error
}

func roles(t testing.TB, cc ConnectConfig, ac AcceptConfig) [2]role {
	t.Helper()
	c2s, s2c := writesOf(t, cc, ac)
	connect := func(ctx context.Context, l handshake.Link) error { _, _, err := Connect(ctx, l, cc); return err }
	accept := func(ctx context.Context, l handshake.Link) error { _, _, err := Accept(ctx, l, ac); return err }
	return [2]role{{"connector", s2c, slices.Concat(s2c...), connect}, {"acceptor", c2s, slices.Concat(c2s...), accept}}
}

// hears runs the side against a peer that sends this and hangs up.
func (r *role) hears(peer []byte) error { return r.run(context.Background(), linktest.Scripted(peer)) }
