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
	cl := c.client(admin, only(auth.Secure))
	c.login(cl)
	e, err := cl.Start(ctx, wire.OSD)
	must(t, err)
	_, _, p, err := e.Request(ctx)
	must(t, err)
	v := c.osd.newVerifier()
	p, _, err = v.Handle(p, auth.Secure)
	must(t, err)
	p, err = e.ReplyMore(ctx, p)
	must(t, err)
	_, principal, err := v.Handle(p, auth.Secure)
	must(t, err)
	login := cl.NewLogin()
	entity, _ := c.ring.Lookup(admin)
	secrets, err := c.authority.Rotating(ServiceOSD)
	must(t, err)
	store := NewSecretStore(ServiceOSD)
	store.Update(secrets.clone())
	cfg := ClientConfig{Name: admin, Key: entity.Key}
	content := ticketContent{name: admin, sessionKey: principal.SessionKey}

	rotating, _ := secrets.Key(2)
	var all []string
	for _, k := range []Key{entity.Key, cl.tickets[ServiceOSD].sessionKey, cl.tickets[ServiceAuth].sessionKey, rotating, c.authority.nobody} {
		all = append(all, forms(k.Secret())...)
		all = append(all, k.base64()[:20]+k.base64()[20:])
	}
	all = append(all, forms(principal.connectionSecret())...)

	for _, v := range []any{
		entity.Key, &entity.Key, entity, &entity, c.ring, cfg, &cfg, cl, e, login, *login, c.authority, c.mon, c.osd, v, *v,
		principal, *principal, secrets, &secrets, secrets.list, store, c.session(), *cl.tickets[ServiceOSD], cl.tickets, content, grant{principal.SessionKey, 1},
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
		cl := c.client(admin)
		c.login(cl)
		e, err := cl.Start(ctx, wire.Mon)
		must(t, err)
		old := e.(*loginExchange).login.oldKey.data().secret
		e.(auth.Wiper).Wipe()
		if !overwritten(old) {
			t.Error("login keeps the old session key")
		}
		e, err = cl.Start(ctx, wire.OSD)
		must(t, err)
		session := e.(*serviceExchange).a.key.data().secret
		e.(auth.Wiper).Wipe()
		if !overwritten(session) {
			t.Error("authorizer keeps the session key")
		}
		if cl.tickets[ServiceOSD].sessionKey.IsZero() {
			t.Error("the ticket of the client is gone too")
		}
		held := cl.tickets[ServiceOSD].sessionKey.data().secret
		c.login(cl)
		if !overwritten(held) {
			t.Error("a replaced ticket keeps its key")
		}
		secrets, err := c.authority.Rotating(ServiceOSD)
		must(t, err)
		k, _ := secrets.Key(1)
		secret := k.data().secret
		store := NewSecretStore(ServiceOSD)
		store.Update(secrets)
		store.Update(RotatingSecrets{})
		if !overwritten(secret) {
			t.Error("replaced secrets are kept")
		}
		c.authority.Wipe()
		if _, ok := c.authority.Secret(ServiceOSD, 2); ok {
			t.Error("a wiped authority has secrets")
		}
	})
}

func TestSignerDoesNotAllocate(t *testing.T) {
	for _, k := range fuzzKeys {
		s, err := NewSigner(k, true)
		must(t, err)
		if n := testing.AllocsPerRun(100, func() { s.Sign(frame1.Signed{Seq: 1}) }); n != 0 {
			t.Errorf("%v: %v allocations", k.Kind(), n)
		}
	}
}
