package cephx

import (
	"io"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

type realClientVector struct {
	Key     string              `json:"entity_key_base64"`
	Secrets map[uint64]hexBytes `json:"our_auth_service_secret"`
	Vectors []struct {
		Auth []struct {
			Request    hexBytes `json:"MAuth_front"`
			Reply      hexBytes `json:"our_MAuthReply_front"`
			Challenge  hexU64   `json:"server_challenge"`
			SessionKey hexBytes `json:"auth_session_key"`
		}
	}
}

// mauth takes the payload out of a recorded MAuth message.
func mauth(t *testing.T, front []byte) (protocol uint32, payload []byte) {
	t.Helper()
	r := wire.NewReader(front)
	r.Skip(18)
	protocol, payload = r.U32(), r.Blob()
	must(t, r.Err())
	return protocol, payload
}

// mauthReply takes the fields out of a recorded MAuthReply.
func mauthReply(t *testing.T, front []byte) (globalID uint64, payload []byte) {
	t.Helper()
	r := wire.NewReader(front)
	r.Skip(8)
	globalID, payload = r.U64(), r.Blob()
	must(t, r.Err())
	return globalID, payload
}

// TestMonAgainstRecordedClient gives the requests of a real command line tool to a
// session that has the same secrets, random values and clock as the recorded monitor,
// and expects the same replies.
func TestMonAgainstRecordedClient(t *testing.T) {
	var file realClientVector
	linktest.Load(t, "cephx-server-mon-real-client.json", &file)
	entityKey, err := ParseKey(file.Key)
	must(t, err)
	ring := new(Keyring)
	must(t, ring.Set(Entity{Name: admin, Key: entityKey, Caps: map[string]string{"osd": "allow *", "mgr": "allow *"}}))
	for i, v := range file.Vectors {
		globalID, reply := mauthReply(t, v.Auth[1].Reply)
		a, content := monitorOf(t, ring, entityKey, reply, globalID, func(id uint64) Key { return key(t, file.Secrets[id]) })
		a.rand = script(v.Auth[0].Challenge, v.Auth[1].SessionKey)
		if i > 0 {
			// The second connection also got tickets, under secrets that were not recorded.
			a.rand = script(v.Auth[0].Challenge, v.Auth[1].SessionKey, make([]byte, 16*3*2))
		}
		_, p := mauth(t, v.Auth[0].Request)
		s, got, err := a.NewSession(p)
		must(t, err)
		_, want := mauthReply(t, v.Auth[0].Reply)
		same(t, "challenge", got, want)

		_, p = mauth(t, v.Auth[1].Request)
		got, err = s.Handle(p)
		must(t, err)
		same(t, "session key", content.sessionKey.Secret(), v.Auth[1].SessionKey)
		if i == 0 {
			same(t, "reply", withCreated(t, got, entityKey, file.Secrets[2], content, nil), reply)
		} else if len(got) != len(reply) {
			t.Errorf("reply of %d bytes, recorded %d", len(got), len(reply))
		}
		if s.GlobalID() != globalID || !s.loggedIn {
			t.Errorf("id %d, logged in %v", s.GlobalID(), s.loggedIn)
		}
		if len(v.Auth) < 3 {
			continue
		}
		// The ticket that the recorded client shows is the recorded one.
		_, p = mauth(t, v.Auth[2].Request)
		_, want = mauthReply(t, v.Auth[2].Reply)
		got, err = s.Handle(p)
		must(t, err)
		if len(got) != len(want) {
			t.Errorf("ticket reply of %d bytes, recorded %d", len(got), len(want))
		}
	}
}

// monitorOf is an authority with the secrets, the clock and the ids of the one that has sent this
// reply to a login, and the content of the ticket in it.
func monitorOf(t *testing.T, ring *Keyring, entity Key, reply []byte, id uint64, secret func(id uint64) Key) (*Authority, ticketContent) {
	t.Helper()
	r := wire.NewReader(reply)
	readReplyHeader(r, opAuthSessionKey)
	g, tk, err := (&readIssued(r)[0]).open(entity, Key{})
	must(t, err)
	content, err := openTicket(tk, secret(tk.secretID))
	must(t, err)
	now := content.created
	a, err := NewAuthority(AuthorityConfig{
		Entities: ring, AuthTTL: g.validity, Ciphers: Ciphers{Service: entity.kind()}, Now: func() time.Time { return now },
	})
	must(t, err)
	a.lastID = id - 1
	secrets := rotatingSecrets{newest: 3}
	for id := uint64(1); id <= 3; id++ {
		secrets.list = append(secrets.list, rotatingSecret{id, secret(id), now.Add(time.Duration(id) * defaultAuthTTL)})
	}
	a.restore(serviceAuth, secrets)
	return a, content
}

// withCreated gives the session key in a login reply the recorded time of creation,
// which the recorder took a moment apart from the times of the ticket.
func withCreated(t *testing.T, reply []byte, entityKey Key, secret []byte, recorded ticketContent, rand io.Reader) []byte {
	t.Helper()
	r := wire.NewReader(reply)
	readReplyHeader(r, opAuthSessionKey)
	s := readIssued(r)[0]
	rest := r.Bytes(r.Len())
	g, tk, err := s.open(entityKey, Key{})
	must(t, err)
	c, err := openTicket(tk, key(t, secret))
	must(t, err)
	*g.sessionKey.data() = *recorded.sessionKey.data()
	c.sessionKey = g.sessionKey
	tk, err = sealTicket(tk.secretID, key(t, secret), &c, rand)
	must(t, err)
	out := appendIssuedHead(appendReplyHeader(nil, opAuthSessionKey), 1)
	out, err = appendIssued(out, serviceAuth, tk, g, entityKey, Key{}, rand)
	must(t, err)
	return append(out, rest...)
}
