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
	doneErr  error // what the client says to AUTH_DONE
	retries  int   // how often the client tries again after AUTH_BAD_METHOD
	results  *[]int32
	wiped    *atomic.Int32
}

func newKeyed(modes ...auth.Mode) keyed {
	return keyed{modes: modes, rounds: 1, secret: 64, key: 7, results: new([]int32), wiped: new(atomic.Int32)}
}

func (k keyed) result(id uint64) *auth.Result {
	res := &auth.Result{GlobalID: id, ConnectionSecret: bytes.Repeat([]byte{9}, k.secret)}
	if k.key != 0 {
		res.SessionKey = bytes.Repeat([]byte{k.key}, 16)
	}
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
	return []auth.Method{auth.Cephx}
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
	return []byte("ticket"), x.result(4242), nil
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

// spyClient keeps the slices of the result that it gave away.
type spyClient struct {
	keyedClient
	key, secret []byte
}

type spyExchange struct {
	auth.ClientExchange
	spy *spyClient
}

func (c *spyClient) Start(ctx context.Context, peer wire.EntityType) (auth.ClientExchange, error) {
	x, err := c.keyedClient.Start(ctx, peer)
	return spyExchange{x, c}, err
}

func (x spyExchange) Wipe() { handshake.Wipe(x.ClientExchange) }

func (x spyExchange) Done(ctx context.Context, id uint64, mode auth.Mode, p []byte) (*auth.Result, error) {
	res, err := x.ClientExchange.Done(ctx, id, mode, p)
	if res != nil {
		x.spy.key, x.spy.secret = res.SessionKey, res.ConnectionSecret
	}
	return res, err
}
