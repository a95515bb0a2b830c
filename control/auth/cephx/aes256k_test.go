package cephx

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

type sealedVector struct {
	What, Why  string
	Key        hexBytes
	Usage      hexU64
	Confounder hexBytes
	Plaintext  hexBytes
	Bare       hexBytes
}

// What daemons of 20.2.4 and this kind of key have encrypted comes out of us byte by byte, and back.
// Matrix: AU-23, AU-24
func TestAES256KVectors(t *testing.T) {
	var file struct {
		Key     struct{ Base64, Binary, Key string }
		Ciphers []sealedVector
		Refused []sealedVector
		Proofs  []struct {
			Key             hexBytes
			ServerChallenge hexU64 `json:"server_challenge"`
			ClientChallenge hexU64 `json:"client_challenge"`
			Proof           hexU64
		}
		Signatures []struct {
			Key, Block hexBytes
			Signature  hexU64
		}
		Handshakes []struct{ Key, Received, Signature hexBytes }
	}
	linktest.Load(t, "cephx-crypto-aes256k.json", &file)
	if len(file.Ciphers) < 60 || len(file.Refused) < 6 || len(file.Proofs) < 1 || len(file.Signatures) < 3 || len(file.Handshakes) < 4 {
		t.Fatal("vectors are missing")
	}
	k, err := ParseKey(file.Key.Base64)
	if err != nil || k.kind() != AES256K || k.base64() != file.Key.Base64 {
		t.Errorf("key of kind %v: %v", k.kind(), err)
	}
	var s aes256kScheme
	for _, v := range file.Ciphers {
		plain := append(bytes.Clone(v.Confounder), v.Plaintext...)
		c, err := s.encrypt(v.Key, usage(v.Usage), append([]byte("x"), plain...), 1)
		must(t, err)
		same(t, v.What, c, append([]byte("x"), v.Bare...))
		p, err := s.decrypt(v.Key, usage(v.Usage), v.Bare)
		must(t, err)
		same(t, v.What, p, v.Plaintext)
	}
	for _, v := range file.Refused {
		if p, err := key(t, v.Key).open(usage(v.Usage), v.Bare); err == nil || p != nil {
			t.Errorf("%s: %x, %v", v.Why, p, err)
		}
	}
	for _, v := range file.Proofs {
		if p, err := key(t, v.Key).proof(uint64(v.ServerChallenge), uint64(v.ClientChallenge)); err != nil || p != uint64(v.Proof) {
			t.Errorf("proof %x, want %x: %v", p, v.Proof, err)
		}
	}
	for _, v := range file.Signatures {
		s, err := NewSigner(v.Key, true)
		must(t, err)
		f := func(i int) uint32 { return le.Uint32(v.Block[4*i:]) }
		m := frame1.Signed{
			HeaderCRC: f(0), FrontCRC: f(1), FrontLen: f(2), MiddleCRC: f(3), MiddleLen: f(4), DataCRC: f(5), DataLen: f(6), Seq: uint64(f(7)),
		}
		for range 2 { // the second one finds the state of the first
			if got := s.Sign(m); got != uint64(v.Signature) {
				t.Errorf("signature %x, want %x", got, v.Signature)
			}
		}
	}
	// Package handshake signs in this way; here is that the key goes in whole.
	for _, v := range file.Handshakes {
		h := hmac.New(sha256.New, key(t, v.Key).Secret())
		h.Write(v.Received)
		same(t, "signature of the handshake", h.Sum(nil), v.Signature)
	}
}

// TestMonAgainstRecordedClientOf20 is a monitor with the recorded one's secrets, random
// values and clock, that answers the login of a real tool of 20.2.4 with the same bytes.
func TestMonAgainstRecordedClientOf20(t *testing.T) {
	for _, v := range vectorsOf[msgr2Vector](t, "cephx-server-mon-aes256k") {
		mode := auth.Mode(v.ModeNumber)
		t.Run(mode.String(), func(t *testing.T) {
			entityKey, err := ParseKey(v.EntityKey)
			must(t, err)
			ring := new(Keyring)
			must(t, ring.Set(Entity{Name: admin, Key: entityKey}))
			a, content := monitorOf(t, ring, entityKey, v.Done, v.GlobalID, func(uint64) Key { return key(t, v.AuthSecret) })
			grantOf, ticketOf, secretOf := v.Confounders[0], v.Confounders[1], v.Confounders[2]
			a.rand = script(v.ServerChallenge, v.AuthSessionKey, ticketOf, grantOf, v.Secret, secretOf)
			s, err := NewServer(ServerConfig{Own: wire.Mon, Authority: a})
			must(t, err)
			e := serving(t, s, mode)
			p, _, err := e.Handle(ctx, v.Request)
			must(t, err)
			same(t, "challenge", p, v.ReplyMore)
			p, res, err := e.Handle(ctx, v.RequestMore)
			must(t, err)
			same(t, "session key", res.SessionKey, v.AuthSessionKey)
			same(t, "connection secret", res.ConnectionSecret, v.Secret)
			same(t, "reply", withCreated(t, p, entityKey, v.AuthSecret, content, script(ticketOf, grantOf)), v.Done)
		})
	}
}

// TestRenewalVector renews the tickets of a session that a real monitor had open.
func TestRenewalVector(t *testing.T) {
	v := vectorsOf[msgr1Vector](t, "cephx-renewal-aes256k")[0]
	c := vectorClient(t, v.EntityKey, v.ClientChallenge, v.AuthorizePlain[envelopeHead+1:envelopeHead+9], v.Confounders)
	c.globalID, c.challenge = v.GlobalID, uint64(v.ServerChallenge)
	valid := func(renewAt time.Time) *heldTicket {
		return &heldTicket{sessionKey: key(t, v.OldKey), ticket: ticket{v.OldSecretID, v.OldBlob}, expires: t0.Add(time.Hour), renewAt: renewAt}
	}
	c.tickets[serviceAuth] = valid(t0)
	for _, s := range ticketServices {
		c.tickets[s] = valid(t0.Add(time.Minute))
	}
	for _, step := range []struct{ request, result hexBytes }{{v.Request, v.Result}, {v.Request3, v.Result3}} {
		p, err := c.RenewRequest()
		must(t, err)
		same(t, "request", p, step.request)
		if whole, err := c.HandleReply(step.result); err != nil || !whole {
			t.Fatal(whole, err)
		}
		for _, s := range []service{serviceMon, serviceOSD, serviceMgr} {
			if len(step.request) == len(v.Request) && bytes.Equal(step.request, v.Request) {
				delete(c.tickets, s)
			}
		}
	}
	for _, w := range v.Tickets {
		w.check(t, c.tickets[w.Service])
	}
}

// Secrets of both kinds are in one list while a cluster goes from one to the other.
func TestSecretsOfBothKindsRotate(t *testing.T) {
	var s rotatingSecrets
	for i, kind := range []Kind{AES, AES256K, AES256K, AES256K} {
		now := t0.Add(time.Duration(2*i) * time.Hour)
		must(t, s.rotate(now, time.Hour, kind, nil))
		again, err := decodeRotatingSecrets(s.appendTo(nil))
		must(t, err)
		store := NewSecretStore(wire.OSD)
		store.update(again)
		for _, e := range s.list {
			k, id := e.key, e.id
			stored, found := store.Secret(wire.OSD, id)
			if want := kind; !found || !stored.equal(k) || i != 1 && k.kind() != want {
				t.Errorf("step %d, secret %d: kind %v", i, id, k.kind())
			}
			cl, err := issueUnder(e)
			must(t, err)
			server, err := NewServer(ServerConfig{Own: wire.OSD, Secrets: store, TicketGrace: -1})
			must(t, err)
			p, err := cl.first()
			must(t, err)
			p, _, err = serving(t, server, auth.CRC).Handle(ctx, p)
			must(t, err)
			_, err = cl.answer(p)
			must(t, err)
		}
	}
}

// issueUnder is an authorizer with a ticket under a secret.
func issueUnder(secret rotatingSecret) (*authorizer, error) {
	tk, g, err := issue(secret, secret.key.kind(), time.Hour, ticketContent{name: admin, globalID: 7, created: t0}, nil)
	if err != nil {
		return nil, err
	}
	return newAuthorizer(new(Client), authorizerHead{7, serviceOSD, tk}, g.sessionKey)
}

// A login with a key of a kind that is not allowed looks like one with a wrong key, and
// is told to the log.
func TestKindsThatAreNotAllowedAreRefused(t *testing.T) {
	for _, allowed := range []Kind{AES, AES256K} {
		for _, kind := range []Kind{AES, AES256K} {
			c := newCluster(t, func(cfg *AuthorityConfig) { cfg.Ciphers = Ciphers{Allowed: []Kind{allowed}, Preferred: kind} })
			_, _, cerr, serr := connect(c.client(admin), c.mon, wires{})
			if k := c.authority.secrets[serviceOSD].list[0].key.kind(); k != allowed {
				t.Errorf("a service has a secret of %v where %v is allowed", k, allowed)
			}
			if kind == allowed {
				must(t, errors.Join(cerr, serr))
			} else if !errors.Is(serr, errKeyType) || !errors.Is(cerr, &auth.Refused{Errno: auth.EACCES}) {
				t.Errorf("%v where %v is allowed: %v, %v", kind, allowed, cerr, serr)
			}
		}
	}
	for _, bad := range []Ciphers{{Allowed: []Kind{3}}, {Service: 3}, {Preferred: 3}} {
		if _, err := NewAuthority(AuthorityConfig{Entities: new(Keyring), Ciphers: bad}); !errors.Is(err, errConfig) || !errors.Is(err, errKeyType) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if k, err := ParseKind("aes256k"); err != nil || k != AES256K {
		t.Error(k, err)
	}
	if _, err := ParseKind("des"); !errors.Is(err, errKeyType) {
		t.Error(err)
	}
}
