package cephx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

var (
	ctx    = context.Background()
	t0     = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	admin  = wire.EntityName{Type: wire.Client, ID: "admin"}
	osd0   = wire.EntityName{Type: wire.OSD, ID: "0"}
	monKey = wire.EntityName{Type: wire.Mon}
)

// hexBytes is a byte string in the vectors.
type hexBytes = linktest.Hex

// hexU64 is a "0x..." number in the vectors.
type hexU64 uint64

func (h *hexU64) UnmarshalText(p []byte) error {
	v, err := strconv.ParseUint(string(p), 0, 64)
	*h = hexU64(v)
	return err
}

var must = drivertest.Must

func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
}

// wantErr fails the test unless err is want.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// wantDue fails the test unless these tickets are due.
func wantDue(t testing.TB, c *Client, when string, want service) {
	t.Helper()
	if due := c.due(); due != want {
		t.Errorf("%s: %v are due, want %v", when, due, want)
	}
}

func key(t testing.TB, secret []byte) Key {
	t.Helper()
	kind, err := kindOf(secret)
	must(t, err)
	k, err := NewKey(kind, bytes.NewReader(secret), t0)
	must(t, err)
	return k
}

// newKey is a key that nobody else has.
func newKey(t testing.TB, kind Kind) Key {
	t.Helper()
	k, err := NewKey(kind, nil, t0)
	must(t, err)
	return k
}

// overwritten reports whether a secret that was taken before a wipe is gone.
func overwritten(secret []byte) bool {
	return len(secret) > 0 && bytes.Equal(secret, make([]byte, len(secret)))
}

// wantOverwritten is overwritten of several secrets.
func wantOverwritten(t testing.TB, secrets ...[]byte) {
	t.Helper()
	for i, s := range secrets {
		if !overwritten(s) {
			t.Errorf("secret %d of %d is kept", i+1, len(secrets))
		}
	}
}

// all are the secrets themselves, which a wipe overwrites.
func (s *rotatingSecrets) all() (secrets [][]byte) {
	for _, e := range s.list {
		secrets = append(secrets, e.key.data().secret)
	}
	return secrets
}

// eachKind runs a test with a cluster all of whose keys are of one kind, for each kind.
func eachKind(t *testing.T, f func(t *testing.T, c *cluster)) {
	for _, k := range []Kind{AES, AES256K} {
		t.Run(k.String(), func(t *testing.T) { f(t, newCluster(t, ofKind(k))) })
	}
}

// ofKind has all keys of one kind.
func ofKind(k Kind) func(*AuthorityConfig) {
	return func(c *AuthorityConfig) { c.Ciphers = Ciphers{Service: k, Preferred: k} }
}

// script is a random source with prepared bytes, which fails when they are used up.
func script(values ...any) io.Reader {
	var b []byte
	for _, v := range values {
		switch v := v.(type) {
		case uint64:
			b = le.AppendUint64(b, v)
		case hexU64:
			b = le.AppendUint64(b, uint64(v))
		case []byte:
			b = append(b, v...)
		case hexBytes:
			b = append(b, v...)
		case []hexBytes:
			b = append(b, bytes.Join(asBytes(v), nil)...)
		}
	}
	return bytes.NewReader(b)
}

func asBytes(list []hexBytes) (out [][]byte) {
	for _, p := range list {
		out = append(out, p)
	}
	return out
}

// lockedRand is a deterministic random source for several goroutines.
type lockedRand struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func seeded(seed byte) *lockedRand {
	return &lockedRand{r: rand.NewChaCha8([32]byte{seed})}
}

func (l *lockedRand) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// cluster is an authority with a monitor's and an osd's server, and the keys of a
// client, an osd and the monitors.
type cluster struct {
	t         testing.TB
	clock     *clock
	rand      io.Reader
	ring      *Keyring
	authority *Authority
	mon, osd  *Server
	last      *Session // of the last login
	cfg       AuthorityConfig
}

func newCluster(t testing.TB, change ...func(*AuthorityConfig)) *cluster {
	c := &cluster{t: t, clock: &clock{now: t0}, rand: seeded(1), ring: new(Keyring)}
	c.cfg = AuthorityConfig{Entities: c.ring, Now: c.clock.Now, Rand: c.rand}
	for _, f := range change {
		f(&c.cfg)
	}
	ciphers, err := c.cfg.Ciphers.normal()
	must(t, err)
	for _, e := range []Entity{
		{Name: admin, Caps: map[string]string{"mon": "allow *", "osd": "allow rwx"}},
		{Name: osd0, Caps: map[string]string{"mon": "allow profile osd", "osd": "allow *"}},
		{Name: monKey, Caps: map[string]string{"mon": "allow *"}},
		{Name: wire.EntityName{Type: wire.Client, ID: "other"}},
	} {
		k, err := NewKey(ciphers.Preferred, c.rand, t0)
		must(t, err)
		e.Key = k
		must(t, c.ring.Set(e))
	}
	c.authority, err = NewAuthority(c.cfg)
	must(t, err)
	c.mon, err = NewServer(ServerConfig{
		Own: wire.Mon, Authority: c.authority, Now: c.clock.Now, Rand: c.rand,
	})
	must(t, err)
	c.osd, err = NewServer(ServerConfig{Own: wire.OSD, Secrets: c.authority, Now: c.clock.Now, Rand: c.rand})
	must(t, err)
	return c
}

func (c *cluster) client(name wire.EntityName, change ...func(*ClientConfig)) *Client {
	c.t.Helper()
	lookup := name
	if name.Type == wire.Mon {
		lookup = monKey
	}
	e, ok := c.ring.Lookup(lookup)
	if !ok {
		c.t.Fatalf("no key of %v", name)
	}
	cfg := ClientConfig{Name: name, Key: e.Key, Now: c.clock.Now, Rand: c.rand}
	for _, f := range change {
		f(&cfg)
	}
	cl, err := NewClient(cfg)
	must(c.t, err)
	return cl
}

func only(m ...auth.Mode) func(*ClientConfig) {
	return func(c *ClientConfig) { c.Modes = func(wire.EntityType) []auth.Mode { return m } }
}

// wires lets a test change the payloads of connect in flight; nil does not.
type wires struct {
	request, reply func(round int, p []byte) []byte
}

// connect runs one whole exchange as the handshake does, with retries after
// AUTH_BAD_METHOD.
func connect(client *Client, server *Server, w wires) (cres, sres *auth.Result, cerr, serr error) {
	own := client.name.Type
	ce, cerr := client.Start(ctx, server.cfg.Own)
	if cerr != nil {
		return nil, nil, cerr, nil
	}
	defer ce.(auth.Wiper).Wipe()
	for range 5 {
		method, modes, p, err := ce.Request(ctx)
		if err != nil {
			return nil, nil, err, serr
		}
		allowed, announced := server.Modes(ctx, own, method)
		var mode auth.Mode
		mode, serr = auth.PickMode(method, modes, allowed)
		if serr == nil {
			cres, sres, cerr, serr = rounds(ce, own, server, method, mode, p, w)
			if serr == nil {
				return cres, sres, cerr, nil
			}
		}
		if cerr = ce.BadMethod(ctx, method, auth.Errno(serr), server.Methods(ctx, own), announced); cerr != nil {
			return nil, nil, cerr, serr
		}
	}
	return nil, nil, errTooManyRounds, serr
}

var errTooManyRounds = malformed("too many rounds")

func rounds(ce auth.ClientExchange, own wire.EntityType, server auth.Server, method auth.Method, mode auth.Mode, p []byte, w wires) (cres, sres *auth.Result, cerr, serr error) {
	se, serr := server.Start(ctx, own, method, mode)
	for round := 0; serr == nil; round++ {
		if w.request != nil {
			p = w.request(round, p)
		}
		var reply []byte
		reply, sres, serr = se.Handle(ctx, p)
		if serr != nil {
			return nil, nil, nil, serr
		}
		if w.reply != nil {
			reply = w.reply(round, reply)
		}
		if sres != nil {
			cres, cerr = ce.Done(ctx, sres.GlobalID, sres.Mode, reply)
			return cres, sres, cerr, nil
		}
		if p, cerr = ce.ReplyMore(ctx, reply); cerr != nil {
			return nil, nil, cerr, nil
		}
	}
	return nil, nil, nil, serr
}

// opens connects a client, and fails the test if that fails.
func (c *cluster) opens(cl *Client, s *Server) (cres, sres *auth.Result) {
	c.t.Helper()
	cres, sres, cerr, serr := connect(cl, s, wires{})
	must(c.t, errors.Join(cerr, serr))
	return cres, sres
}

// login logs a client in.
func (c *cluster) login(cl *Client) (cres, sres *auth.Result) {
	c.t.Helper()
	cres, sres = c.opens(cl, c.mon)
	c.last, _ = sres.Session.(*Session)
	return cres, sres
}

// loggedIn is a client that has logged in.
func (c *cluster) loggedIn(name wire.EntityName, change ...func(*ClientConfig)) *Client {
	c.t.Helper()
	cl := c.client(name, change...)
	c.login(cl)
	return cl
}

// newClient is a client that has logged in to a cluster.
func newClient(t testing.TB) (*cluster, *Client) {
	c := newCluster(t)
	return c, c.loggedIn(admin)
}

// asked is an exchange of a client, and the request that it begins with.
func asked(t testing.TB, cl *Client, peer wire.EntityType) (auth.ClientExchange, []byte) {
	t.Helper()
	x, err := cl.Start(ctx, peer)
	must(t, err)
	_, _, p, err := x.Request(ctx)
	must(t, err)
	return x, p
}

// serving is an exchange of a server with a client.
func serving(t testing.TB, s *Server, mode auth.Mode) auth.ServerExchange {
	t.Helper()
	x, err := s.Start(ctx, wire.Client, auth.Cephx, mode)
	must(t, err)
	return x
}

// answered is an exchange up to the answer to the challenge, which s does not have yet.
func answered(t testing.TB, cl *Client, s *Server, mode auth.Mode) (auth.ClientExchange, auth.ServerExchange, []byte) {
	t.Helper()
	x, p := asked(t, cl, s.cfg.Own)
	y := serving(t, s, mode)
	p, _, err := y.Handle(ctx, p)
	must(t, err)
	p, err = x.ReplyMore(ctx, p)
	must(t, err)
	return x, y, p
}

// lastReply has the last reply of an exchange changed.
func lastReply(change func(p []byte) []byte) wires {
	return wires{reply: func(round int, p []byte) []byte {
		if round == 1 {
			return change(p)
		}
		return p
	}}
}

// proving is the request of a login.
func proving(a authenticate) []byte { return a.appendTo(le.AppendUint16(nil, opAuthSessionKey)) }

// authorizerOf is the first payload of an authorizer.
func authorizerOf(t testing.TB, cl *Client, head authorizerHead, key Key) []byte {
	t.Helper()
	a, err := newAuthorizer(cl, head, key)
	must(t, err)
	p, err := a.first()
	must(t, err)
	return p
}

// show presents a ticket of a client to the osd.
func (c *cluster) show(cl *Client, held *heldTicket) error {
	c.t.Helper()
	p := authorizerOf(c.t, cl, authorizerHead{cl.globalID, serviceOSD, held.ticket}, held.sessionKey.Clone())
	_, _, err := serving(c.t, c.osd, auth.CRC).Handle(ctx, p)
	return err
}

// decodeRotatingSecrets decodes the wire form.
func decodeRotatingSecrets(p []byte) (rotatingSecrets, error) {
	r := wire.NewReader(p)
	s := readRotatingSecrets(r)
	if err := r.Err(); err != nil {
		return rotatingSecrets{}, fmt.Errorf("rotating secrets: %w", err)
	}
	return s, nil
}

// Created returns the time of creation that the key carries.
func (k Key) created() time.Time {
	if k.IsZero() {
		return time.Time{}
	}
	return time.Unix(int64(k.data().sec), int64(k.data().nsec)).UTC()
}

// equal says whether both secrets are the same. A missing key equals no key.
func (k Key) equal(o Key) bool {
	return !k.IsZero() && !o.IsZero() && bytes.Equal(k.data().secret, o.data().secret)
}

// restore replaces the secrets of a service.
func (a *Authority) restore(s service, secrets rotatingSecrets) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secrets[s] = &secrets
}
