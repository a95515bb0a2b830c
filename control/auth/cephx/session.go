package cephx

import (
	"fmt"
	"io"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Session is the monitor's side of cephx on one connection: the login and later requests. In
// protocol version 2 a [Server] drives the login, and the session is the Session of its result;
// renewals, and all requests of version 1, come in MAuth messages. It belongs to one goroutine
// at a time.
type Session struct {
	a         *Authority
	name      wire.EntityName
	globalID  uint64
	newID     bool
	challenge uint64
	loggedIn  bool
}

// NewSession begins a session with the payload of an MAuth message of protocol 0, and returns
// the server challenge for the reply. Each further payload of the peer goes to Handle. The errno
// for the peer is [auth.Errno] of an error; a refused login has to begin another session.
func (a *Authority) NewSession(payload []byte) (s *Session, challenge []byte, err error) {
	methods, name, id, err := decodeMAuthStart(payload)
	if err != nil {
		return nil, nil, err
	}
	if !slices.Contains(methods, auth.Cephx) {
		return nil, nil, fmt.Errorf("%w: peer offers %v", auth.ErrNoMethod, methods)
	}
	s = &Session{a: a}
	challenge, err = s.start(name, id)
	return s, challenge, err
}

// GlobalID returns the global id of the peer.
func (s *Session) GlobalID() uint64 { return s.globalID }

// Result is the outcome of the login, without its keys, which no connection of msgr1
// needs; nil as long as the peer has not proven its name.
func (s *Session) Result() *auth.Result {
	if !s.loggedIn {
		return nil
	}
	entity, _ := s.a.entities.Lookup(s.name)
	return &auth.Result{
		GlobalID: s.globalID, Entity: s.name, Mode: auth.CRC, Method: auth.Cephx, Caps: entity.Caps[wire.Mon.String()], Session: s,
	}
}

// start chooses the global id and the challenge of a new session. Whether the entity exists is not told
// before the proof.
func (s *Session) start(name wire.EntityName, wantedID uint64) ([]byte, error) {
	s.name, s.globalID, s.newID = name, wantedID, wantedID == 0
	if s.newID {
		s.globalID = s.a.nextID()
	}
	for s.challenge == 0 {
		c, err := randomU64(s.a.rand)
		if err != nil {
			return nil, err
		}
		s.challenge = c
	}
	return appendServerChallenge(nil, s.challenge), nil
}

// Handle answers a request that came in an MAuth message: the proof of a login, for
// tickets, or for the rotating secrets of the peer's service.
func (s *Session) Handle(payload []byte) (reply []byte, err error) {
	r := wire.NewReader(payload)
	op := r.U16()
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("cephx request: %w", err)
	}
	if op != opAuthSessionKey && !s.loggedIn {
		return nil, fmt.Errorf("cephx request 0x%04x before the login: %w", op, errOutOfOrder)
	}
	switch op {
	case opAuthSessionKey:
		reply, res, err := s.login(r, 0)
		res.Wipe()
		return reply, err
	case opPrincipalSessionKey:
		return s.principalTickets(r)
	case opRotatingKey:
		return s.rotatingSecrets()
	}
	return nil, inval(fmt.Sprintf("unknown cephx request 0x%04x", op))
}

// handleLogin takes the proof of a login and returns the reply, and the result with the auth
// session key and, in mode secure, the connection secret. The caller wipes both.
func (s *Session) handleLogin(payload []byte, mode auth.Mode) (reply []byte, res *auth.Result, err error) {
	r := wire.NewReader(payload)
	if op := r.U16(); r.Err() == nil && op != opAuthSessionKey {
		r.Fail(malformed(fmt.Sprintf("login with op 0x%04x", op)))
	}
	if err := r.Err(); err != nil {
		s.challenge = 0
		return nil, nil, fmt.Errorf("login: %w", err)
	}
	return s.login(r, mode)
}

func (s *Session) login(r *wire.Reader, mode auth.Mode) (reply []byte, res *auth.Result, err error) {
	defer func() {
		if err != nil {
			// There is one try per challenge. A right answer leaves the challenge valid for
			// renewals on this session: real clients answer the same one again.
			s.challenge, s.loggedIn = 0, false
			err = fmt.Errorf("login of %v: %w", s.name, err)
		}
	}()
	if s.challenge == 0 {
		return nil, nil, errOutOfOrder
	}
	req := readAuthenticate(r)
	if err := r.Err(); err != nil {
		return nil, nil, err
	}
	entity, err := s.prove(&req)
	if err != nil {
		return nil, nil, err
	}
	old, err := s.checkReclaim(&req)
	if err != nil {
		return nil, nil, err
	}
	defer old.Wipe()
	if mode == auth.Secure && req.otherKeys == 0 {
		// The reply would have no room for the connection secret.
		return nil, nil, inval("mode secure without other keys")
	}
	reply, key, secret, err := s.loginReply(entity.Key, old, &req, mode)
	if err != nil {
		return nil, nil, err
	}
	defer key.Wipe()
	s.loggedIn, s.newID = true, false
	res = s.Result()
	res.SessionKey, res.ConnectionSecret, res.Mode = key.Secret(), secret, mode
	return reply, res, nil
}

// prove verifies the proof, in the same time for an entity that does not exist.
func (s *Session) prove(req *authenticate) (Entity, error) {
	entity, known := s.a.entities.Lookup(s.name)
	known = known && !entity.Key.IsZero()
	key := entity.Key
	if !known {
		key = s.a.nobody
	}
	want, err := key.proof(s.challenge, req.clientChallenge)
	if err != nil {
		return Entity{}, err
	}
	if !equalU64(want, req.proof) || !known {
		return Entity{}, errProof
	}
	if !slices.Contains(s.a.ciphers.Allowed, key.kind()) {
		return Entity{}, fmt.Errorf("%w: keys of kind %v are not allowed", errKeyType, key.kind())
	}
	return entity, nil
}

// checkReclaim applies the rules of keeping a global id (Ceph's CephxServiceHandler.cc), and
// returns the session key of the old ticket if there is a valid one. The age of the ticket does not
// matter as long as its secret is still there.
func (s *Session) checkReclaim(req *authenticate) (old Key, err error) {
	if s.newID {
		if req.version >= 3 && !req.oldTicket.isZero() {
			return Key{}, inval("new global id with an old ticket")
		}
		return Key{}, nil
	}
	if req.oldTicket.isZero() {
		return Key{}, errReclaim
	}
	secret, ok := s.a.Secret(wire.Auth, req.oldTicket.secretID)
	if !ok {
		return Key{}, fmt.Errorf("%w: %w", errReclaim, errUnknownSecret)
	}
	defer secret.Wipe()
	c, err := openTicket(req.oldTicket, secret)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", errReclaim, err)
	}
	if c.globalID != s.globalID || c.name != s.name {
		c.sessionKey.Wipe()
		return Key{}, fmt.Errorf("%w: %w", errReclaim, errForeignTicket)
	}
	return c.sessionKey, nil
}

// loginReply builds reply 2 of the protocol.
func (s *Session) loginReply(entityKey, old Key, req *authenticate, mode auth.Mode) (reply []byte, session Key, secret []byte, err error) {
	t, g, err := s.a.issueFor(serviceAuth, s.name, s.globalID, entityKey.kind())
	if err != nil {
		return nil, Key{}, nil, err
	}
	defer func() {
		if err != nil {
			g.sessionKey.Wipe()
			clear(secret)
			reply, session, secret = nil, Key{}, nil
		}
	}()
	reply = appendIssuedHead(appendReplyHeader(nil, opAuthSessionKey), 1)
	if reply, err = appendIssued(reply, serviceAuth, t, g, entityKey, old, s.a.rand); err != nil {
		return
	}
	if req.otherKeys == 0 {
		return reply, g.sessionKey, nil, nil
	}
	var blobC []byte
	if mode != 0 {
		if mode == auth.Secure {
			secret = make([]byte, connectionSecretSize)
			if err = random(s.a.rand, secret); err != nil {
				return
			}
		}
		if blobC, err = sealSecret(g.sessionKey, secret, s.a.rand); err != nil {
			return
		}
	}
	reply = wire.AppendBlob(reply, blobC)
	blobX, _, err := s.a.appendTickets(nil, req.otherKeys, s.name, s.globalID, g.sessionKey)
	if err != nil {
		return
	}
	return wire.AppendBlob(reply, blobX), g.sessionKey, secret, nil
}

// appendTickets appends a service ticket reply with all existing services of wanted; n is their
// number. Without one it appends no byte.
func (a *Authority) appendTickets(
	dst []byte, wanted service, name wire.EntityName, globalID uint64, session Key,
) (out []byte, n int, err error) {
	var given []service
	for _, s := range ticketServices {
		if wanted.has(s) {
			given = append(given, s)
		}
	}
	if len(given) == 0 {
		return dst, 0, nil
	}
	dst = appendIssuedHead(dst, len(given))
	for _, s := range given {
		t, g, err := a.issueFor(s, name, globalID, session.kind())
		if err != nil {
			return nil, 0, err
		}
		dst, err = appendIssued(dst, s, t, g, session, Key{}, a.rand)
		g.sessionKey.Wipe()
		if err != nil {
			return nil, 0, err
		}
	}
	return dst, len(given), nil
}

// appendIssued appends one entry of a service ticket reply. If old is a key, the ticket
// is encrypted with it.
func appendIssued(dst []byte, s service, t ticket, g grant, principal, old Key, r io.Reader) ([]byte, error) {
	plain := g.appendTo(nil)
	defer clear(plain)
	partA, err := principal.seal(useGrant, nil, plain, r)
	if err != nil {
		return nil, err
	}
	e := issued{service: s, grant: partA, sealed: t.appendTo(nil)}
	if !old.IsZero() {
		e.encrypted = true
		if e.sealed, err = old.seal(useOldTicket, nil, wire.AppendBlob(nil, e.sealed), r); err != nil {
			return nil, err
		}
	}
	return e.appendTo(dst), nil
}

// principalTickets answers request 3 of the protocol: an authorizer for the issuer, and
// the services to give tickets for. Name and id of the new tickets are those of the
// auth ticket; the name must be that of the session, and still one of an entity.
func (s *Session) principalTickets(r *wire.Reader) ([]byte, error) {
	h, sealed := readAuthorizer(r)
	readVersion(r, "ticket request", structVersion)
	wanted := service(r.U32())
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("ticket request: %w", err)
	}
	// There is no challenge: the sender of a replay cannot open the keys of its tickets.
	c, _, err := h.open(sealed, serviceAuth, s.a, s.a.now, 0)
	if err != nil {
		return nil, fmt.Errorf("ticket request of %v: %w", s.name, err)
	}
	defer c.sessionKey.Wipe()
	if c.name != s.name {
		return nil, fmt.Errorf("ticket request of %v with a ticket of %v: %w", s.name, c.name, errForeignTicket)
	}
	if _, known := s.a.entities.Lookup(c.name); !known {
		return nil, fmt.Errorf("ticket request of %v, which was removed: %w", c.name, errProof)
	}
	reply := appendReplyHeader(nil, opPrincipalSessionKey)
	reply, n, err := s.a.appendTickets(reply, wanted, c.name, c.globalID, c.sessionKey)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, inval(fmt.Sprintf("ticket request for no service: %v", wanted))
	}
	return reply, nil
}

// rotatingSecrets answers a daemon with the secrets of its service, under its own key.
func (s *Session) rotatingSecrets() ([]byte, error) {
	switch s.name.Type {
	case wire.Mon, wire.MDS, wire.OSD, wire.Mgr:
	default:
		return nil, fmt.Errorf("rotating secrets for %v: %w", s.name, errForeignTicket)
	}
	entity, _ := s.a.entities.Lookup(s.name) // of one that is gone by now no key encrypts
	secrets, err := s.a.rotating(service(s.name.Type))
	if err != nil {
		return nil, err
	}
	defer secrets.Wipe()
	plain := secrets.appendTo(nil)
	defer clear(plain)
	return entity.Key.sealPrefixed(useRotating, appendReplyHeader(nil, opRotatingKey), plain, s.a.rand)
}
