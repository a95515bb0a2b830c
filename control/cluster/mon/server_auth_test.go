package mon

import (
	"reflect"
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
	name := wire.EntityName{Type: wire.Client, ID: "admin"}
	key, err := cephx.NewKey(cephx.AES, nil, time.Now())
	check(t, err)
	var ring cephx.Keyring
	check(t, ring.Set(cephx.Entity{Name: name, Key: key}))
	authority, err := cephx.NewAuthority(cephx.AuthorityConfig{Entities: &ring})
	check(t, err)
	client, err := cephx.NewClient(cephx.ClientConfig{Name: name, Key: key})
	check(t, err)
	front := func(method auth.Method, payload []byte) []byte {
		b := le.AppendUint32(appendPaxos(nil), uint32(method))
		return le.AppendUint32(wire.AppendBlob(b, payload), 0)
	}
	var session *cephx.Session
	refused := func(when string, payloads ...[]byte) {
		t.Helper()
		before := session.Result()
		for _, method := range []auth.Method{0, auth.None, 3, 1 << 31} {
			for _, p := range payloads {
				if a := answerAuth(session, front(method, p)); a.result != auth.EOPNOTSUPP || len(a.payload) > 0 {
					t.Errorf("%s, method %d: %+v", when, method, a)
				}
			}
		}
		if !reflect.DeepEqual(session.Result(), before) {
			t.Errorf("%s: the session was changed", when)
		}
	}
	var start []byte
	_, err = client.Login(func(method auth.Method, payload []byte) (uint64, []byte, error) {
		if session == nil {
			start = payload
			var challenge []byte
			session, challenge, err = authority.NewSession(payload)
			return session.GlobalID(), challenge, err
		}
		when := "before the proof"
		if session.Result() != nil {
			when = "after the proof"
		}
		refused(when, payload, start, nil)
		a := answerAuth(session, front(method, payload))
		if res := session.Result(); a.result != 0 || res == nil || res.Entity != name {
			t.Fatalf("%s: %+v, %v", when, a, res)
		}
		refused("after the proof", payload, start, nil)
		return a.globalID, a.payload, nil
	})
	check(t, err)
}
