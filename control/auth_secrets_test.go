package control_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// vault keeps copies of the secrets that the exchanges of one side end with.
type vault struct {
	mu       sync.Mutex
	sessions [][]byte
	secrets  [][]byte
	live     []*auth.Result // as they were handed out
	raw      [][]byte       // the memory of their secrets
}

func (v *vault) keep(res *auth.Result) {
	if res == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sessions = append(v.sessions, bytes.Clone(res.SessionKey))
	v.secrets = append(v.secrets, bytes.Clone(res.ConnectionSecret))
	v.live = append(v.live, res)
	v.raw = append(v.raw, res.SessionKey, res.ConnectionSecret)
}

func (v *vault) all() (sessions, secrets [][]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.sessions), slices.Clone(v.secrets)
}

// hookedClient runs the last call of each exchange within a hook, which is told the type of the peer.
type hookedClient struct {
	auth.Client
	around func(ctx context.Context, peer wire.EntityType, call func() *auth.Result)
}

type hookedDialling struct {
	auth.ClientExchange
	c    hookedClient
	peer wire.EntityType
}

func (c hookedClient) Start(ctx context.Context, peer wire.EntityType) (auth.ClientExchange, error) {
	x, err := c.Client.Start(ctx, peer)
	return hookedDialling{x, c, peer}, err
}

func (x hookedDialling) Done(ctx context.Context, id uint64, mode auth.Mode, p []byte) (res *auth.Result, err error) {
	x.c.around(ctx, x.peer, func() *auth.Result {
		res, err = x.ClientExchange.Done(ctx, id, mode, p)
		return res
	})
	return res, err
}

// hookedServer runs each call of its exchanges within a hook, which is told what the peer says.
type hookedServer struct {
	auth.Server
	around func(ctx context.Context, said []byte, call func() *auth.Result)
}

type hookedServing struct {
	auth.ServerExchange
	s hookedServer
}

func (s hookedServer) Start(ctx context.Context, peer wire.EntityType, m auth.Method, mode auth.Mode) (auth.ServerExchange, error) {
	x, err := s.Server.Start(ctx, peer, m, mode)
	return hookedServing{x, s}, err
}

func (x hookedServing) Handle(ctx context.Context, p []byte) (reply []byte, res *auth.Result, err error) {
	x.s.around(ctx, p, func() *auth.Result {
		reply, res, err = x.ServerExchange.Handle(ctx, p)
		return res
	})
	return reply, res, err
}

// client and server keep the results of c and s.
func (v *vault) client(c auth.Client) auth.Client {
	return hookedClient{c, func(_ context.Context, _ wire.EntityType, call func() *auth.Result) { v.keep(call()) }}
}

func (v *vault) server(s auth.Server) auth.Server {
	return hookedServer{s, func(_ context.Context, _ []byte, call func() *auth.Result) { v.keep(call()) }}
}

// Each TCP connection of a session authenticates anew and has keys and nonces
// of its own: what was used on one socket is not used on another, in either direction.
// Matrix: AU-14, RP-01
func TestEveryReconnectHasFreshKeys(t *testing.T) {
	for _, rev0 := range []bool{false, true} {
		secure := []auth.Mode{auth.Secure}
		authClient, authServer := cephxPair(t, secure, secure)
		var ours, theirs vault
		lossless, stateful, cuts := control.LosslessClient(), control.StatefulServer(), nodetest.NewProbe()
		client := newParty(t, control.Config{
			Name: entity(t, "client.admin"), Default: &lossless, Diagnostics: control.Diagnostics{Probe: cuts}, Protocol: control.Protocol{Rev0: rev0}, Auth: control.Auth{Client: ours.client(authClient)},
		})
		server := newParty(t, control.Config{Name: entity(t, "mon.a"), Default: &stateful, Auth: control.Auth{Server: theirs.server(authServer)}}).bind(t)
		conn := connect(t, client.m, server.addr, wire.Mon)
		exchange(t, conn, []byte("first"))
		const reconnects = 8
		for range reconnects {
			cuts.ArmNext(nodetest.Write(frame.TagMessage), nodetest.Fault())
			exchange(t, conn, []byte("again"))
		}
		sessions, secrets := ours.all()
		if n := len(sessions); n <= reconnects {
			t.Fatalf("rev0 %v: %d exchanges for %d reconnects", rev0, n, reconnects)
		}
		if s2, c2 := theirs.all(); !slices.EqualFunc(sessions, s2, bytes.Equal) || !slices.EqualFunc(secrets, c2, bytes.Equal) {
			t.Errorf("rev0 %v: the two sides do not have the same", rev0)
		}
		used := make(map[string]string)
		use := func(what string, socket int, p ...[]byte) {
			id := string(bytes.Join(p, nil))
			if before, ok := used[id]; ok {
				t.Errorf("rev0 %v: %s of socket %d is that of %s", rev0, what, socket, before)
			}
			used[id] = fmt.Sprintf("%s of socket %d", what, socket)
		}
		for i, secret := range secrets {
			use("session key", i, sessions[i])
			k, err := frame.KeysFromSecret(secret, true)
			must(t, err)
			use("key", i, k.Key[:])
			use("pair of key and sending nonce", i, k.Key[:], k.TxNonce[:])
			use("pair of key and receiving nonce", i, k.Key[:], k.RxNonce[:])
			use("sending nonce", i, k.TxNonce[:])
			use("receiving nonce", i, k.RxNonce[:])
		}
		end(t, client.m)
		end(t, server.m) // behind the handshakes of both
		wantWiped(t, &ours, &theirs)
	}
}

// wantWiped checks that the results that the exchanges handed out hold no secret.
func wantWiped(t *testing.T, vaults ...*vault) {
	t.Helper()
	for _, v := range vaults {
		v.mu.Lock()
		for i, p := range v.raw {
			if !bytes.Equal(p, make([]byte, len(p))) {
				t.Errorf("secret %d of %d bytes is still in memory", i, len(p))
			}
		}
		for _, res := range v.live {
			if res.SessionKey != nil || res.ConnectionSecret != nil {
				t.Errorf("result of %v still has its secrets", res.Entity)
			}
		}
		v.mu.Unlock()
	}
}

// looks are the ways in which a secret could stand in a text.
func looks(secret []byte) []string {
	decimal := strings.Trim(fmt.Sprint(secret), "[]")
	out := []string{
		string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)), fmt.Sprintf("% x", secret),
		decimal, strings.ReplaceAll(decimal, " ", ","), strings.ReplaceAll(decimal, " ", ", "), fmt.Sprintf("%q", secret), strings.Trim(fmt.Sprintf("%#v", secret), "[]byte{}"),
	}
	for shift := range 3 { // base64 of something that has it anywhere
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := enc.EncodeToString(append(make([]byte, shift), secret...))
			out = append(out, whole[(shift*8+5)/6:len(whole)-1])
		}
	}
	return out
}

func wantHidden(t *testing.T, where, text string, secrets [][]byte) {
	t.Helper()
	for i, s := range secrets {
		for _, form := range looks(s) {
			if strings.Contains(text, form) {
				at := strings.Index(text, form)
				t.Errorf("secret %d of %d bytes is in %s: ...%s", i, len(s), where, text[max(0, at-100):min(len(text), at+100)])
				break
			}
		}
	}
}

// With everything logged, over logins, tickets, authorizers, renewals, faults,
// reconnects and refusals in both modes, no secret is in the log, in the errors or in the
// statistics, in any usual form.
// Matrix: AU-15
func TestNoSecretIsEverLogged(t *testing.T) {
	for _, mode := range []auth.Mode{auth.Secure, auth.CRC} {
		t.Run(mode.String(), func(t *testing.T) {
			var book logText
			log := book.everything(mode == auth.CRC)
			usual := slog.Default() // nothing should go there, but if it did
			slog.SetDefault(log)
			defer slog.SetDefault(usual)
			clock := stillClock()
			offer := func(wire.EntityType) []auth.Mode { return []auth.Mode{mode} }
			var ours, theirs vault
			var said strings.Builder

			ring := &cephx.Keyring{}
			admin, osd := entity(t, "client.admin"), entity(t, "osd.0")
			var secrets [][]byte
			for _, name := range []wire.EntityName{admin, osd, {Type: wire.Mon}} {
				key, err := cephx.NewKey(cephx.AES, nil, clock.Now())
				must(t, err)
				must(t, ring.Set(cephx.Entity{Name: name, Key: key, Caps: map[string]string{"mon": "allow *", "osd": "allow *"}}))
				secrets = append(secrets, key.Secret())
			}
			authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring, Now: clock.Now})
			must(t, err)
			serves := func(own wire.EntityType, a *cephx.Authority) auth.Server {
				s, err := cephx.NewServer(cephx.ServerConfig{Own: own, Authority: a, Secrets: authority, Modes: offer, Now: clock.Now})
				must(t, err)
				return theirs.server(s)
			}
			dials := func(name wire.EntityName, key cephx.Key) (*cephx.Client, auth.Client) {
				c, err := cephx.NewClient(cephx.ClientConfig{Name: name, Key: key, Modes: offer, Now: clock.Now})
				must(t, err)
				return c, ours.client(c)
			}

			var monAddr wire.Addr
			monitor := authMessenger(t, control.Config{Name: entity(t, "mon.a"), Auth: control.Auth{Server: serves(wire.Mon, authority)}, Logger: log},
				mon.NewServer(mon.ServerConfig{Map: func() mon.MonMap {
					return mon.MonMap{Epoch: 1, Mons: []mon.Mon{{Name: "a", Addrs: wire.AddrVec{monAddr}}}}
				}}))
			monAddr = listenOn(t, monitor)
			stateful, lossless, cuts := control.StatefulServer(), control.LosslessClient(), nodetest.NewProbe()
			store := newParty(t, control.Config{Name: osd, Default: &stateful, Auth: control.Auth{Server: serves(wire.OSD, nil)}, Logger: log}).bind(t)

			own, _ := ring.Lookup(admin)
			keys, dialler := dials(admin, own.Key)
			mc, err := mon.NewClient(mon.Config{Mons: []wire.Addr{monAddr}, Auth: keys, Clock: clock, Logger: log, Retry: time.Millisecond})
			must(t, err)
			t.Cleanup(mc.Close)
			client := authMessenger(t, control.Config{
				Name: admin, Policies: map[wire.EntityType]control.Policy{wire.OSD: lossless}, Auth: control.Auth{Client: dialler}, Logger: log, Diagnostics: control.Diagnostics{Probe: cuts},
			}, mc.Dispatcher())
			ctx := deadline(t)
			must(t, mc.Open(ctx, client))
			conn := connect(t, client, store.addr, wire.OSD)
			exchange(t, conn, []byte("one"))
			cuts.ArmNext(nodetest.Write(frame.TagMessage), nodetest.Fault())
			exchange(t, conn, []byte("two"))
			clock.pass(50 * time.Minute)
			happens(t, "a renewal", func() bool { return !keys.RenewAt().IsZero() })

			// Refusals: a wrong key, and a ticket that is of no use.
			wrong, err := cephx.NewKey(cephx.AES, nil, clock.Now())
			must(t, err)
			secrets = append(secrets, wrong.Secret())
			_, liar := dials(admin, wrong)
			bad := newParty(t, control.Config{Name: admin, Auth: control.Auth{Client: liar}, Logger: log})
			for _, peer := range []struct {
				to  wire.Addr
				typ wire.EntityType
			}{{monAddr, wire.Mon}, {store.addr, wire.OSD}} {
				conn, err := bad.dial(t, &party{addr: peer.to}, peer.typ)
				if !errors.Is(err, control.ErrAuth) {
					t.Errorf("with a wrong key to %v: %v", peer.typ, err)
				}
				fmt.Fprintf(&said, "%v %+v %#v %v\n", err, err, err, conn.Info())
			}

			for _, s := range []wire.EntityType{wire.Auth, wire.OSD, wire.Mon} {
				for id := uint64(1); id <= 3; id++ {
					k, ok := authority.Secret(s, id)
					if !ok {
						t.Errorf("no secret %d of %v", id, s)
					}
					secrets = append(secrets, k.Secret())
				}
			}
			for _, v := range []*vault{&ours, &theirs} {
				sessions, connection := v.all()
				secrets = append(secrets, sessions...)
				for _, s := range connection {
					if len(s) > 0 {
						secrets = append(secrets, s, s[:16], s[16:28], s[28:40])
					}
				}
				if len(sessions) < 3 {
					t.Errorf("%d exchanges only", len(sessions))
				}
			}
			for _, m := range []*control.Messenger{monitor, store.m, client} {
				st := statsOf(t, m)
				text, err := json.Marshal(st)
				must(t, err)
				fmt.Fprintf(&said, "%v\n%s\n%+v %#v\n", st, text, st, st)
				for _, c := range m.Conns() {
					fmt.Fprintf(&said, "%+v %+v %#v %v\n", c.Info(), c.Auth(), *c.Auth(), c.Err())
				}
			}
			for _, m := range []*control.Messenger{client, bad.m, store.m, monitor} {
				end(t, m)
			}
			text := book.String()
			if n := strings.Count(text, "\n"); n < 20 || !strings.Contains(text, "client.admin") && !strings.Contains(text, "refused") {
				t.Errorf("the log has %d lines, so that this test says nothing:\n%s", n, text)
			}
			wantHidden(t, "the log", text, secrets)
			wantHidden(t, "errors and statistics", said.String(), secrets)
			wantWiped(t, &ours, &theirs)
		})
	}
}

func TestTheSearchForSecretsFindsThem(t *testing.T) {
	secret := []byte("\x00\x01~secret key\xff\x80")
	framed := append(append([]byte("in front"), secret...), "behind"...)
	for _, text := range []string{
		string(framed), hex.EncodeToString(framed), fmt.Sprintf("%X", framed), fmt.Sprint(framed), fmt.Sprintf("%v", secret), fmt.Sprintf("% x", secret),
		base64.StdEncoding.EncodeToString(framed), base64.URLEncoding.EncodeToString(framed[1:]), base64.StdEncoding.EncodeToString(framed[2:]),
		fmt.Sprintf("%#v", framed), fmt.Sprintf("%q", secret),
	} {
		if !slices.ContainsFunc(looks(secret), func(form string) bool { return strings.Contains(text, form) }) {
			t.Errorf("not found in %s", text)
		}
	}
}
