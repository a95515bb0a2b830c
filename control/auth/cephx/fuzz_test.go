package cephx

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// seed adds every byte string of the recorded exchanges.
func seed(f *testing.F) {
	files, err := filepath.Glob("testdata/cephx-*.json")
	must(f, err)
	for _, name := range files {
		p, err := os.ReadFile(name)
		must(f, err)
		var v any
		must(f, json.Unmarshal(p, &v))
		seedValue(f, v)
	}
}

func seedValue(f *testing.F, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			seedValue(f, x)
		}
	case []any:
		for _, x := range v {
			seedValue(f, x)
		}
	case string:
		var h hexBytes
		if p, err := json.Marshal(v); err == nil && json.Unmarshal(p, &h) == nil && len(h) < 4096 {
			f.Add([]byte(h))
		}
	}
}

// FuzzDecoders gives the input to the decoder of every structure; what decodes must
// encode to something that decodes to the same.
func FuzzDecoders(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		if k, err := decodeKey(p, readKey); err == nil {
			same(t, "key", k.appendTo(nil), p)
		}
		r := wire.NewReader(p)
		if v := readTicket(r); r.Err() == nil {
			same(t, "ticket", v.appendTo(nil)[1:], p[1:len(p)-r.Len()])
		}
		again(t, "rotating secrets", p, readRotatingSecrets, (*rotatingSecrets).appendTo)
		again(t, "ticket content", p, readTicketContent, (*ticketContent).appendTo)
		again(t, "grant", p, readGrant, (*grant).appendTo)
		again(t, "authenticate", p, readAuthenticate, (*authenticate).appendTo)
		r = wire.NewReader(p)
		readReplyHeader(r, opAuthSessionKey)
		readIssued(r)
		for _, v := range readIssued(wire.NewReader(p)) {
			for _, k := range fuzzKeys {
				v.open(k, k)
			}
		}
		r = wire.NewReader(p)
		if h, sealed := readAuthorizer(r); r.Err() == nil {
			q := wire.AppendBlob(h.appendTo(nil), sealed)
			h, sealed = readAuthorizer(wire.NewReader(q))
			same(t, "authorizer", wire.AppendBlob(h.appendTo(nil), sealed), q)
		}
		if v := readAuthorize(wire.NewReader(p)); v.haveChallenge {
			w := readAuthorize(wire.NewReader(v.appendTo(nil)))
			if v != w {
				t.Errorf("authorize %v became %v", v, w)
			}
		}
		decodeServerChallenge(p)
		decodeLoginStart(p)
		decodeMAuthStart(p)
		for _, k := range fuzzKeys {
			openSecret(k, p)
			openChallenge(k, p)
			openReply(k, p)
		}
		(&ticketContent{caps: p}).capsText()
	})
}

// again checks that what reads p, if it is well formed, encodes to bytes that mean the same.
func again[T any](t *testing.T, what string, p []byte, read func(*wire.Reader) T, write func(*T, []byte) []byte) {
	t.Helper()
	r := wire.NewReader(p)
	v := read(r)
	if r.Err() != nil {
		return
	}
	q := write(&v, nil)
	v = read(wire.NewReader(q))
	same(t, what, write(&v, nil), q)
}

// fuzzKeys has one key of each kind, fuzzKey is the first.
var (
	fuzzKey, _  = NewKey(AES, strings.NewReader("0123456789abcdef"), time.Unix(1, 0))
	fuzzKey2, _ = NewKey(AES256K, strings.NewReader("0123456789abcdef0123456789abcdef"), time.Unix(1, 0))
	fuzzKeys    = []Key{fuzzKey, fuzzKey2}
)

// FuzzSealed encrypts the input first, so that the decoders behind the cipher see it.
func FuzzSealed(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, k := range fuzzKeys {
			sealed := func(u usage) []byte {
				bare, err := k.seal(u, nil, p, nil)
				must(t, err)
				got, err := k.open(u, bare)
				must(t, err)
				if !bytes.Equal(got, p) {
					t.Fatal("round trip")
				}
				return bare
			}
			openTicket(ticket{1, sealed(useTicket)}, k)
			openSecret(k, wire.AppendBlob(nil, sealed(useSecret)))
			openChallenge(k, sealed(useChallenge))
			openReply(k, wire.AppendBlob(nil, sealed(useReply)))
			for _, encrypted := range []bool{false, true} {
				s := issued{serviceOSD, sealed(useGrant), encrypted, sealed(useOldTicket)}
				s.open(k, k)
			}
			k.openDecode(useAuthorize, sealed(useAuthorize), func(r *wire.Reader) { readAuthorize(r) })
			(&ClientConfig{Name: osd0, Key: k}).rotating(t, wire.AppendBlob(nil, sealed(useRotating)))
			k.open(useTicket, p)
		}
	})
}

// rotating gives p to a daemon as the answer with its secrets.
func (cfg *ClientConfig) rotating(t *testing.T, p []byte) {
	c, err := NewClient(*cfg)
	must(t, err)
	if s, err := c.openSecrets(append(appendReplyHeader(nil, opRotatingKey), p...)); err == nil {
		s.Wipe()
	}
}

// FuzzExchanges gives the input to each end of both exchanges, at each step.
func FuzzExchanges(f *testing.F) {
	seed(f)
	c := newCluster(f)
	cl := c.loggedIn(admin)
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, s := range []*Server{c.mon, c.osd} {
			e := serving(t, s, auth.Secure)
			e.Handle(ctx, p)
			e.Handle(ctx, p)
		}
		e := serving(t, c.mon, auth.Secure)
		_, _, err := e.Handle(ctx, appendLoginStart(nil, admin, 0))
		must(t, err)
		if _, res, err := e.Handle(ctx, p); err == nil || res != nil {
			t.Error("login without a proof")
		}
		s := *c.last
		s.Handle(p)
		c.authority.NewSession(p)

		for _, peer := range []wire.EntityType{wire.Mon, wire.OSD} {
			e, _ := asked(t, cl, peer)
			e.ReplyMore(ctx, p)
			e.(*clientExchange).step = stepAnswered
			e.Done(ctx, 1, auth.CRC, p)
		}
		cl.openSecrets(p)
		cl.pending = &pendingRenewal{op: opPrincipalSessionKey, wanted: defaultServices, key: fuzzKey.Clone()}
		cl.HandleReply(p)
	})
}

// FuzzKeyring checks that what parses can be written and parses again.
func FuzzKeyring(f *testing.F) {
	f.Add(sampleKeyring)
	f.Add("[client.a]\nkey = " + vectorEntityKey + "\ncaps x = \"a\\\"\"")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ReadKeyring(strings.NewReader(text))
		if err != nil {
			return
		}
		var out, again bytes.Buffer
		k.WriteTo(&out)
		k2, err := ReadKeyring(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		k2.WriteTo(&again)
		if out.String() != again.String() {
			t.Errorf("%s\nbecame\n%s", out.String(), again.String())
		}
	})
}
