package mon

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// On a session that began with cephx, an MAuth message with another method, 0
// among them, is refused and changes nothing, whatever it carries.
// Matrix: AU-21
func TestMAuthCannotChangeTheMethod(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	name := wire.EntityName{Type: wire.Client, ID: "admin"}
	key, err := cephx.NewKey(cephx.AES, nil, time.Now())
	must(err)
	var ring cephx.Keyring
	must(ring.Set(cephx.Entity{Name: name, Key: key}))
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: &ring})
	must(err)
	client, err := cephx.NewClient(cephx.ClientConfig{Name: name, Key: key})
	must(err)
	session, login := authority.NewSession(), client.NewLogin()
	start, err := login.StartMAuth()
	must(err)
	challenge, err := session.StartMAuth(start)
	must(err)
	proof, err := login.Challenge(challenge)
	must(err)

	front := func(method uint32, payload []byte) []byte {
		b := le.AppendUint32(appendPaxos(nil), method)
		return le.AppendUint32(wire.AppendBlob(b, payload), 0)
	}
	refused := func(when string, payloads ...[]byte) {
		t.Helper()
		for _, method := range []uint32{0, uint32(auth.None), 3, 1 << 31} {
			for _, p := range payloads {
				if a := answerAuth(session, front(method, p)); a.result != auth.EOPNOTSUPP || len(a.payload) > 0 {
					t.Errorf("%s, method %d: %+v", when, method, a)
				}
			}
		}
	}
	refused("before the proof", proof, start, nil)
	if session.LoggedIn() {
		t.Fatal("logged in by another method")
	}
	a := answerAuth(session, front(uint32(auth.Cephx), proof))
	if a.result != 0 || !session.LoggedIn() || session.Entity() != name {
		t.Fatalf("the proof itself: %+v", a)
	}
	_, err = login.Done(session.GlobalID(), 0, a.payload)
	must(err)
	refused("after the proof", proof, start, nil)
	if !session.LoggedIn() || session.Entity() != name {
		t.Error("the session was changed")
	}
}
