package cephx

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame1"
)

type cryptoVector struct {
	Name      string
	Base64    string
	Binary    hexBytes
	Created   uint32 `json:"created_sec"`
	CreatedNs uint32 `json:"created_nsec"`
	Key       hexBytes
	Plain     hexBytes
	Cipher    hexBytes
	Payload   hexBytes
	Input     hexBytes `json:"padded_input_without_padding"`
	Bare      hexBytes
	Prefixed  hexBytes `json:"with_length"`

	ServerChallenge hexU64 `json:"server_challenge"`
	ClientChallenge hexU64 `json:"client_challenge"`
	Envelope        hexBytes
	ProofKey        hexU64 `json:"proof_key"`

	HeaderCRC hexU64 `json:"header_crc"`
	FrontCRC  hexU64 `json:"front_crc"`
	FrontLen  uint32 `json:"front_len"`
	MiddleCRC hexU64 `json:"middle_crc"`
	MiddleLen uint32 `json:"middle_len"`
	DataCRC   hexU64 `json:"data_crc"`
	DataLen   uint32 `json:"data_len"`
	Seq       uint64
	Signature *hexU64
}

func TestCryptoVectors(t *testing.T) {
	vectors := vectorsOf[cryptoVector](t, "cephx-crypto")
	if len(vectors) < 9 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			k := key(t, v.Key)
			switch {
			case v.Base64 != "":
				k, err := ParseKey(v.Base64)
				must(t, err)
				same(t, "binary", k.appendTo(nil), v.Binary)
				same(t, "secret", k.Secret(), v.Key)
				if k.base64() != v.Base64 || !k.created().Equal(time.Unix(int64(v.Created), int64(v.CreatedNs))) {
					t.Errorf("base64 %s, created %v", k.base64(), k.created())
				}
			case v.Bare != nil:
				bare, err := k.seal(useTicket, nil, v.Payload, nil)
				must(t, err)
				same(t, "bare", bare, v.Bare)
				prefixed, err := k.sealPrefixed(useGrant, []byte("x"), v.Payload, nil)
				must(t, err)
				same(t, "prefixed", prefixed, append([]byte("x"), v.Prefixed...))
				input, err := aesScheme{}.decrypt(v.Key, 0, v.Bare)
				must(t, err)
				same(t, "input", input, v.Input)
				p, err := k.open(useReply, v.Bare)
				must(t, err)
				same(t, "opened", p, v.Payload)
			case v.ProofKey != 0:
				p, err := k.proof(uint64(v.ServerChallenge), uint64(v.ClientChallenge))
				must(t, err)
				if p != uint64(v.ProofKey) {
					t.Errorf("proof %x, want %x", p, v.ProofKey)
				}
			case v.Signature != nil:
				s, err := NewSigner(v.Key, v.Seq != 0)
				must(t, err)
				sums := frame1.Signed{
					HeaderCRC: uint32(v.HeaderCRC), FrontCRC: uint32(v.FrontCRC), MiddleCRC: uint32(v.MiddleCRC),
					DataCRC: uint32(v.DataCRC), FrontLen: v.FrontLen, MiddleLen: v.MiddleLen, DataLen: v.DataLen, Seq: v.Seq,
				}
				for range 2 { // the second one finds the buffer of the first
					if got := s.Sign(sums); got != uint64(*v.Signature) {
						t.Errorf("signature %x, want %x", got, *v.Signature)
					}
				}
			default:
				c, err := aesScheme{}.encrypt(v.Key, 0, append([]byte(nil), v.Plain...), 0)
				must(t, err)
				same(t, "cipher", c, v.Cipher)
				p, err := aesScheme{}.decrypt(v.Key, 0, v.Cipher)
				must(t, err)
				same(t, "plain", p, v.Plain)
			}
		})
	}
}

type ticketVector struct {
	Service       service  `json:"service_id"`
	SecretID      uint64   `json:"secret_id"`
	Encrypted     int      `json:"encrypted_with_old_session_key"`
	GrantPlain    hexBytes `json:"msg_a_plain"`
	SessionKey    hexBytes `json:"session_key"`
	Validity      [2]int64
	TicketStruct  hexBytes `json:"ticket_struct"`
	Blob          hexBytes `json:"ticket_blob"`
	ServiceSecret hexBytes `json:"service_secret"`
	Plain         hexBytes `json:"ticket_plain"`
}

// check compares a ticket of the client with the vector, and makes it again.
func (v *ticketVector) check(t *testing.T, got *heldTicket) {
	t.Helper()
	if got == nil {
		t.Errorf("no ticket for %v", v.Service)
		return
	}
	same(t, "session key", got.sessionKey.Secret(), v.SessionKey)
	same(t, "ticket", got.ticket.appendTo(nil), v.TicketStruct)
	same(t, "blob", got.ticket.blob, v.Blob)
	if got.ticket.secretID != v.SecretID {
		t.Errorf("secret id %d", got.ticket.secretID)
	}
	validity := time.Duration(v.Validity[0])*time.Second + time.Duration(v.Validity[1])
	if want := t0.Add(validity); !got.expires.Equal(want) || !got.renewAt.Equal(want.Add(-validity/4)) {
		t.Errorf("expires %v, renewed at %v, want life %v", got.expires, got.renewAt, validity)
	}
	same(t, "grant again", grant{got.sessionKey, validity}.appendTo(nil), v.GrantPlain)
	if v.ServiceSecret == nil {
		return
	}
	c, err := openTicket(got.ticket, key(t, v.ServiceSecret))
	must(t, err)
	same(t, "ticket content", c.appendTo(nil), v.Plain)
	again, err := sealTicket(v.SecretID, key(t, v.ServiceSecret), &c, nil)
	must(t, err)
	same(t, "ticket again", again.appendTo(nil), v.TicketStruct)
}

func vectorClient(t *testing.T, base64 string, rand ...any) *Client {
	t.Helper()
	if base64 == "" {
		base64 = vectorEntityKey
	}
	k, err := ParseKey(base64)
	must(t, err)
	c, err := NewClient(ClientConfig{Name: admin, Key: k, Now: func() time.Time { return t0 }, Rand: script(rand...)})
	must(t, err)
	return c
}

// vectorEntityKey is the key in the files that name none.
const vectorEntityKey = "AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA=="

type msgr1Vector struct {
	AuthPayload     hexBytes `json:"auth_payload"`
	GlobalID        uint64   `json:"global_id"`
	ServerStruct    hexBytes `json:"server_challenge_struct"`
	ServerChallenge hexU64   `json:"server_challenge"`
	ClientChallenge hexU64   `json:"client_challenge"`
	Proof           hexU64   `json:"proof_key"`
	Request         hexBytes `json:"request_payload"`
	Result          hexBytes `json:"result_bl"`
	Tickets         []ticketVector
	Nonce           hexU64
	EntityKey       string     `json:"entity_key_base64"`
	Confounders     []hexBytes // of what this side encrypts
	SessionKey      hexBytes   `json:"session_key_auth_service"`
	AuthorizePlain  hexBytes   `json:"authorize_plain"`

	// Of a renewal.
	OldSecretID uint64   `json:"old_ticket_secret_id"`
	OldBlob     hexBytes `json:"old_ticket_blob"`
	OldKey      hexBytes `json:"old_session_key"`
	Request3    hexBytes `json:"request_payload_3"`
	Result3     hexBytes `json:"result_bl_3"`
}

func TestMonLoginOverMAuthVector(t *testing.T) { eachRecording(t, "cephx-mon-msgr1", replayMAuth) }

func replayMAuth(t *testing.T, vectors []msgr1Vector) {
	start, login, extra := vectors[0], vectors[1], vectors[2]
	c := vectorClient(t, login.EntityKey, login.ClientChallenge, extra.Nonce, extra.Confounders)

	l := c.newLogin()
	defer l.Wipe()
	_, err := l.first()
	must(t, err)
	p := appendMAuthStart(nil, admin, 0)
	// The recorded client offered none too.
	same(t, "start", p, append([]byte{1, 1, 0, 0, 0, 2, 0, 0, 0}, start.AuthPayload[13:]...))
	methods, name, id, err := decodeMAuthStart(start.AuthPayload)
	if err != nil || name != admin || id != 0 || len(methods) != 2 {
		t.Errorf("start decodes to %v %v %d %v", methods, name, id, err)
	}

	p, err = l.answer(start.ServerStruct)
	must(t, err)
	same(t, "request 2", p, login.Request)
	res, err := l.done(start.GlobalID, 0, login.Result)
	must(t, err)
	if len(res.ConnectionSecret) != 0 || c.GlobalID() != start.GlobalID || len(login.Tickets) != 5-1 {
		t.Errorf("secret of %d bytes, id %d, %d tickets", len(res.ConnectionSecret), c.GlobalID(), len(login.Tickets))
	}
	for _, v := range login.Tickets {
		v.check(t, c.tickets[v.Service])
	}

	// The third request ends with the services that it asked for.
	wanted := service(le.Uint32(extra.Request[len(extra.Request)-4:]))
	for _, s := range ticketServices {
		if wanted.has(s) {
			delete(c.tickets, s)
		}
	}
	if due := c.due(); due != wanted {
		t.Fatalf("due are %v", due)
	}
	p, err = c.RenewRequest()
	must(t, err)
	same(t, "request 3", p, extra.Request)
	if whole, err := c.HandleReply(extra.Result); err != nil || !whole {
		t.Fatal(whole, err)
	}
	wantDue(t, c, "still due", 0)
	for _, v := range extra.Tickets {
		v.check(t, c.tickets[v.Service])
	}
}

type msgr2Vector struct {
	Name            string
	Request         hexBytes `json:"auth_request_payload"`
	ReplyMore       hexBytes `json:"auth_reply_more_payload"`
	ServerChallenge hexU64   `json:"server_challenge"`
	ClientChallenge hexU64   `json:"client_challenge"`
	RequestMore     hexBytes `json:"auth_request_more_payload"`
	GlobalID        uint64   `json:"auth_done_global_id"`
	Mode            auth.Mode
	ModeNumber      uint32   `json:"auth_done_con_mode"`
	Done            hexBytes `json:"auth_done_payload"`
	Secret          hexBytes `json:"connection_secret"`
	Tickets         []ticketVector
	EntityKey       string   `json:"entity_key_base64"`
	AuthSecret      hexBytes `json:"auth_secret"`
	AuthSessionKey  hexBytes `json:"auth_session_key"`
	// Confounders are of authorize, challenge, authorize, reply; if keys have none, nil.
	Confounders []hexBytes

	Authorizer1    hexBytes `json:"authorizer1"`
	Challenge      hexBytes `json:"challenge_blob"`
	ChallengePlain hexBytes `json:"challenge_plain"`
	Authorizer2    hexBytes `json:"authorizer2"`
	Nonce          hexU64
	SessionKey     hexBytes `json:"session_key"`
	ServiceSecret  hexBytes `json:"service_secret"`
}

// vectorsOf are those of a file.
func vectorsOf[V any](t *testing.T, file string) []V {
	var f struct{ Vectors []V }
	linktest.Load(t, file+".json", &f)
	return f.Vectors
}

// eachRecording runs a test for the recording with each kind of keys.
func eachRecording[V any](t *testing.T, name string, replay func(*testing.T, []V)) {
	for _, name := range []string{name, name + "-aes256k"} {
		t.Run(name, func(t *testing.T) { replay(t, vectorsOf[V](t, name)) })
	}
}

// Matrix: AU-02
func TestMsgr2Vectors(t *testing.T) {
	for file, mode := range map[string]auth.Mode{
		"cephx-msgr2-crc": auth.CRC, "cephx-msgr2-secure": auth.Secure,
		"cephx-msgr2-crc-aes256k": auth.CRC, "cephx-msgr2-secure-aes256k": auth.Secure,
		// Of the client's key, then of the services' secrets.
		"cephx-msgr2-secure-aes-aes256k": auth.Secure, "cephx-msgr2-secure-aes256k-aes": auth.Secure,
	} {
		both := vectorsOf[msgr2Vector](t, file)
		mon, osd := both[0], both[1]
		name := admin
		if mon.Request != nil {
			var err error
			name, _, err = decodeLoginStart(mon.Request)
			must(t, err)
		}
		t.Run(file+" client", func(t *testing.T) { replayClient(t, name, mon, osd, mode) })
		t.Run(file+" service", func(t *testing.T) { replayService(t, name, osd, mode) })
	}
}

// replayClient runs the client against recorded daemons.
func replayClient(t *testing.T, name wire.EntityName, mon, osd msgr2Vector, mode auth.Mode) {
	rand := []any{mon.ClientChallenge, osd.Nonce}
	if osd.Confounders != nil {
		rand = append(rand, osd.Confounders[0], osd.Confounders[2])
	}
	c := vectorClient(t, mon.EntityKey, rand...)
	c.name = name
	c.modes = func(wire.EntityType) []auth.Mode { return []auth.Mode{mode} }
	e, err := c.Start(ctx, wire.Mon)
	must(t, err)
	method, modes, p, err := e.Request(ctx)
	must(t, err)
	if method != auth.Cephx || len(modes) != 1 || modes[0] != mode {
		t.Errorf("request: %v %v", method, modes)
	}
	same(t, "request", p, mon.Request)
	p, err = e.ReplyMore(ctx, mon.ReplyMore)
	must(t, err)
	same(t, "request more", p, mon.RequestMore)
	res, err := e.Done(ctx, mon.GlobalID, mode, mon.Done)
	must(t, err)
	same(t, "session key", res.SessionKey, mon.Tickets[0].SessionKey)
	same(t, "connection secret", res.ConnectionSecret, mon.Secret)
	if res.GlobalID != mon.GlobalID || res.Mode != mode || res.Entity != name || res.Method != auth.Cephx {
		t.Errorf("result %v %v %v %v", res.GlobalID, res.Mode, res.Entity, res.Method)
	}
	for _, v := range mon.Tickets {
		v.check(t, c.tickets[v.Service])
	}

	e, p = asked(t, c, wire.OSD)
	same(t, "authorizer", p, osd.Authorizer1)
	p, err = e.ReplyMore(ctx, osd.Challenge)
	must(t, err)
	same(t, "second authorizer", p, osd.Authorizer2)
	res, err = e.Done(ctx, osd.GlobalID, mode, osd.Done)
	must(t, err)
	same(t, "session key", res.SessionKey, osd.SessionKey)
	same(t, "connection secret", res.ConnectionSecret, osd.Secret)
}

type fixedSecrets map[uint64]Key

func (f fixedSecrets) Secret(_ wire.EntityType, id uint64) (Key, bool) {
	k, ok := f[id]
	return k.Clone(), ok
}

// replayService runs the service against the recorded client.
func replayService(t *testing.T, name wire.EntityName, v msgr2Vector, mode auth.Mode) {
	rand := []any{v.ChallengePlain[1:], v.Secret}
	if v.Confounders != nil {
		rand = []any{v.ChallengePlain[1:], v.Confounders[1], v.Secret, v.Confounders[3]}
	}
	s, err := NewServer(ServerConfig{
		Own: wire.OSD, Secrets: fixedSecrets{2: key(t, v.ServiceSecret)}, TicketGrace: -1,
		Rand: script(rand...),
	})
	must(t, err)
	e := serving(t, s, mode)
	p, res, err := e.Handle(ctx, v.Authorizer1)
	must(t, err)
	same(t, "challenge", p, v.Challenge)
	if res != nil {
		t.Fatal("done without a challenge")
	}
	p, res, err = e.Handle(ctx, v.Authorizer2)
	must(t, err)
	same(t, "reply", p, v.Done)
	same(t, "session key", res.SessionKey, v.SessionKey)
	same(t, "connection secret", res.ConnectionSecret, v.Secret)
	if res.Caps != "allow *" || res.GlobalID != v.GlobalID || res.Entity != name {
		t.Errorf("caps %q, id %d, entity %v", res.Caps, res.GlobalID, res.Entity)
	}
}

type reclaimVector struct {
	EntityKey    string   `json:"entity_key_base64"`
	GlobalID     uint64   `json:"global_id"`
	OldSecretID  uint64   `json:"old_ticket_secret_id"`
	OldBlob      hexBytes `json:"old_ticket_blob"`
	OldKey       hexBytes `json:"old_session_key"`
	Request      hexBytes `json:"auth_request_payload"`
	Challenge    hexBytes `json:"server_challenge_struct"`
	RequestMore  hexBytes `json:"auth_request_more_payload"`
	Done         hexBytes `json:"auth_done_payload"`
	Grant        hexBytes `json:"new_msg_a_plain"`
	TicketStruct hexBytes `json:"new_ticket_struct"`
	SessionKey   hexBytes `json:"new_session_key"`
}

func TestReclaimVector(t *testing.T) { eachRecording(t, "cephx-reclaim", replayReclaim) }

func replayReclaim(t *testing.T, vectors []reclaimVector) {
	v := vectors[0]
	c := vectorClient(t, v.EntityKey, v.RequestMore[3:11])
	c.globalID = v.GlobalID
	c.tickets[serviceAuth] = &heldTicket{sessionKey: key(t, v.OldKey), ticket: ticket{v.OldSecretID, v.OldBlob}, expires: t0.Add(time.Hour)}
	e, err := c.Start(ctx, wire.Mon)
	must(t, err)
	_, modes, p, err := e.Request(ctx)
	must(t, err)
	same(t, "request", p, v.Request)
	p, err = e.ReplyMore(ctx, v.Challenge)
	must(t, err)
	same(t, "request more", p, v.RequestMore)
	res, err := e.Done(ctx, v.GlobalID, modes[1], v.Done)
	must(t, err)
	same(t, "session key", res.SessionKey, v.SessionKey)
	got := c.tickets[serviceAuth]
	same(t, "ticket", got.ticket.appendTo(nil), v.TicketStruct)
	same(t, "grant", grant{got.sessionKey, defaultAuthTTL}.appendTo(nil), v.Grant)
}

type rotatingVector struct {
	Reply     hexBytes `json:"reply_result_bl"`
	Key       string   `json:"entity_key_base64"`
	Plaintext hexBytes
	Secrets   map[uint64]struct {
		Key     hexBytes
		Expires [2]int64
	}
}

func TestRotatingVector(t *testing.T) { eachRecording(t, "cephx-rotating", replayRotating) }

func replayRotating(t *testing.T, vectors []rotatingVector) {
	v := vectors[0]
	c := vectorClient(t, v.Key)
	s, err := c.openSecrets(v.Reply)
	must(t, err)
	same(t, "plain text", s.appendTo(nil), v.Plaintext)
	for id, want := range v.Secrets {
		k, ok := s.byID(id)
		if !ok {
			t.Fatalf("no secret %d", id)
		}
		same(t, "secret", k.Secret(), want.Key)
	}
	if want := time.Unix(v.Secrets[2].Expires[0], v.Secrets[2].Expires[1]); !s.currentExpires().Equal(want) {
		t.Errorf("current expires %v, want %v", s.currentExpires(), want)
	}
}
