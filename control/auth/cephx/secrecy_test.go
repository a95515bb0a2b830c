package cephx

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

// forms are the ways in which a secret could be seen in a text.
func forms(secret []byte) []string {
	decimal := strings.Trim(fmt.Sprint(secret[:6]), "[]")
	return []string{
		string(secret), hex.EncodeToString(secret[:6]), strings.ToUpper(hex.EncodeToString(secret[:6])), decimal,
		strings.ReplaceAll(decimal, " ", ","), strings.ReplaceAll(decimal, " ", ", "),
		fmt.Sprintf("%#v", secret)[8:40], base64.StdEncoding.EncodeToString(secret)[:12],
	}
}

// Matrix: AU-15
func TestKeysAreNeverPrinted(t *testing.T) {
	c := newCluster(t)
	cl := c.loggedIn(admin, only(auth.Secure))
	e, x, p := answered(t, cl, c.osd, auth.Secure)
	v := x.(*serverExchange)
	_, res, err := v.Handle(ctx, p)
	must(t, err)
	session := cl.tickets[serviceOSD].sessionKey
	login := cl.newLogin()
	entity, _ := c.ring.Lookup(admin)
	secrets, err := c.authority.rotating(serviceOSD)
	must(t, err)
	store := NewSecretStore(wire.OSD)
	store.update(secrets.clone())
	cfg := ClientConfig{Name: admin, Key: entity.Key}
	content := ticketContent{name: admin, sessionKey: session}

	rotating, _ := secrets.byID(2)
	var all []string
	for _, k := range []Key{entity.Key, cl.tickets[serviceOSD].sessionKey, cl.tickets[serviceAuth].sessionKey, rotating, c.authority.nobody} {
		all = append(all, forms(k.Secret())...)
		all = append(all, k.base64()[:20]+k.base64()[20:])
	}
	all = append(all, forms(res.ConnectionSecret)...)

	for _, v := range []any{
		entity.Key, &entity.Key, entity, &entity, c.ring, cfg, &cfg, cl, e, login, *login, c.authority, c.mon, c.osd, v, *v,
		secrets, &secrets, secrets.list, store, c.last, *cl.tickets[serviceOSD], cl.tickets, content, grant{session, 1},
		[]Key{entity.Key}, map[string]Key{"a": entity.Key}, c.authority.secrets,
	} {
		var out strings.Builder
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		var b bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
			slog.New(h).Log(context.Background(), slog.LevelInfo, "x", "v", v)
		}
		j, _ := json.Marshal(v)
		text := out.String() + b.String() + string(j)
		for _, f := range all {
			if strings.Contains(text, f) {
				t.Errorf("%T shows a secret:\n%s", v, text)
				break
			}
		}
	}
	if s := fmt.Sprintf("%v %d %x %+v", entity.Key, entity.Key, entity, Key{}); !strings.Contains(s, redacted) || !strings.Contains(s, "[no key]") {
		t.Error(s)
	}
}

func TestExchangesWipeTheirKeys(t *testing.T) {
	eachKind(t, func(t *testing.T, c *cluster) {
		cl := c.loggedIn(admin)
		e, err := cl.Start(ctx, wire.Mon)
		must(t, err)
		old := e.(*clientExchange).steps.(*login).oldKey.data().secret
		e.(auth.Wiper).Wipe()
		if !overwritten(old) {
			t.Error("login keeps the old session key")
		}
		e, err = cl.Start(ctx, wire.OSD)
		must(t, err)
		x := e.(*clientExchange)
		first := x.steps.(*authorizer).key.data().secret
		must(t, e.BadMethod(ctx, auth.Cephx, auth.EOPNOTSUPP, []auth.Method{auth.Cephx}, []auth.Mode{auth.CRC}))
		session := x.steps.(*authorizer).key.data().secret
		e.(auth.Wiper).Wipe()
		if !overwritten(first) || !overwritten(session) {
			t.Error("authorizer keeps the session key")
		}
		if cl.tickets[serviceOSD].sessionKey.IsZero() {
			t.Error("the ticket of the client is gone too")
		}
		held := cl.tickets[serviceOSD].sessionKey.data().secret
		c.login(cl)
		if !overwritten(held) {
			t.Error("a replaced ticket keeps its key")
		}
		// A renewal that is answered, or sent again, forgets the key of the request.
		for range 2 {
			c.clock.add(50 * time.Minute)
			_, err := cl.RenewRequest()
			must(t, err)
			lost := cl.pending.key.data().secret
			reply := c.renewal(cl)
			wantOverwritten(t, lost)
			answered := cl.pending.key.data().secret
			_, err = cl.HandleReply(reply)
			must(t, err)
			wantOverwritten(t, answered)
		}
	})
}

// A store and an authority overwrite the secrets that they replace, and all at their end. Renew makes others.
func TestSecretsOfServicesAreOverwritten(t *testing.T) {
	c := newCluster(t)
	copies := func() (s rotatingSecrets, all [][]byte) {
		s, err := c.authority.rotating(serviceOSD)
		must(t, err)
		return s, s.all()
	}
	store := NewSecretStore(wire.OSD)
	first, replaced := copies()
	store.update(first)
	second, ended := copies()
	store.update(second)
	wantOverwritten(t, replaced...)
	store.Wipe()
	wantOverwritten(t, ended...)

	replaced = c.authority.secrets[serviceOSD].all()
	must(t, c.authority.Renew())
	wantOverwritten(t, replaced...)
	ended = [][]byte{c.authority.nobody.data().secret}
	for _, s := range c.authority.secrets {
		ended = append(ended, s.all()...)
	}
	c.authority.Wipe()
	wantOverwritten(t, ended...)
	if _, ok := c.authority.Secret(wire.OSD, 2); ok || len(ended) <= len(ticketServices) {
		t.Error("a wiped authority has secrets, or Renew has not made those of all services at once")
	}
}

// lent is a source that keeps the copies that it gives away, which their receiver wipes.
type lent struct {
	SecretSource
	keys []Key
}

func (l *lent) Secret(s wire.EntityType, id uint64) (Key, bool) {
	k, ok := l.SecretSource.Secret(s, id)
	l.keys = append(l.keys, k)
	return k, ok
}

// A service overwrites its copy of the secret that opened a ticket;
// a connection secret that the mode does not need, or that is too short, is not kept.
func TestAServiceOverwritesTheSecretsOfAnExchange(t *testing.T) {
	c := newCluster(t)
	source := &lent{SecretSource: c.authority}
	c.osd.cfg.Secrets = source
	cl := c.loggedIn(admin, only(auth.Secure))
	_, sres, cerr, serr := connect(cl, c.osd, wires{})
	if cerr != nil || serr != nil || len(sres.ConnectionSecret) == 0 || len(source.keys) == 0 {
		t.Fatal(cerr, serr, len(source.keys))
	}
	for _, k := range source.keys {
		if !k.IsZero() {
			t.Error("the secret of the service is kept")
		}
	}
	for mode, n := range map[auth.Mode]int{auth.CRC: connectionSecretSize, auth.Secure: auth.ConnectionSecretMin - 1} {
		sent := bytes.Repeat([]byte{9}, n)
		kept, err := secretFor(mode, sent)
		if kept != nil || (err != nil) != (mode == auth.Secure) {
			t.Errorf("%v: keeps %d bytes, %v", mode, len(kept), err)
		}
		wantOverwritten(t, sent)
	}
}

func TestSignerDoesNotAllocate(t *testing.T) {
	for _, k := range fuzzKeys {
		s, err := NewSigner(k.Secret(), true)
		must(t, err)
		if n := testing.AllocsPerRun(100, func() { s.Sign(frame1.Signed{Seq: 1}) }); n != 0 {
			t.Errorf("%v: %v allocations", k.kind(), n)
		}
	}
}
