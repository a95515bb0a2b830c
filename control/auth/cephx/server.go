package cephx

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// defaultTicketGrace is the time after its expiry in which a ticket is accepted, as clocks
// differ.
const defaultTicketGrace = 5 * time.Minute

// ServerConfig configures a [Server].
type ServerConfig struct {
	// Own is the own entity type, which is also the service that authorizers must be for.
	Own wire.EntityType
	// Authority makes this the server of a monitor, which accepts logins.
	Authority *Authority
	// Secrets opens the tickets of authorizers. Nil means the Authority.
	Secrets SecretSource
	// Modes returns the connection modes allowed to a peer of the given type. It must be
	// safe for concurrent use. Nil means that connections of mons prefer secure, others crc.
	Modes func(peer wire.EntityType) []auth.Mode
	// TicketGrace is the time after its expiry in which a ticket is accepted; 0 means 5
	// minutes. Negative: the rotation of the secrets alone limits the life of tickets, as in
	// Ceph.
	TicketGrace time.Duration
	// Accept, if not nil, has the last word about an entity that was proven. Its error
	// refuses the peer. It must be safe for concurrent use. The type in a peer's name need
	// not be the type of the peer: any program may use any key that it has.
	// A login by messages, as [Authority.NewSession] begins it, does not ask: look at the
	// [Session.Result] there.
	Accept func(peer wire.EntityType, name wire.EntityName) error
	// Now is the clock; nil means [time.Now].
	Now func() time.Time
	// Rand is the source of challenges and connection secrets; nil means [crypto/rand].
	// It must be safe for concurrent use.
	Rand io.Reader
}

// Server is the acceptor's side of cephx: it implements [auth.Server]. It is safe for
// concurrent use.
type Server struct{ cfg ServerConfig }

// NewServer returns a server. Without an authority there must be a source of secrets.
func NewServer(cfg ServerConfig) (*Server, error) {
	switch {
	case !allServices.has(service(cfg.Own)) || cfg.Own == 0 || cfg.Own == wire.Auth || cfg.Own&(cfg.Own-1) != 0:
		return nil, fmt.Errorf("%w: %v has no service", errConfig, cfg.Own)
	case cfg.Authority == nil && cfg.Secrets == nil:
		return nil, fmt.Errorf("%w: neither an authority nor secrets", errConfig)
	case cfg.Authority != nil && cfg.Own != wire.Mon:
		return nil, fmt.Errorf("%w: only a monitor accepts logins, not %v", errConfig, cfg.Own)
	}
	if cfg.Secrets == nil {
		cfg.Secrets = cfg.Authority
	}
	cfg.TicketGrace, cfg.Now = cmp.Or(cfg.TicketGrace, defaultTicketGrace), wallClock(cfg.Now)
	return &Server{cfg}, nil
}

// Authority is that of the configuration; nil: none.
func (s *Server) Authority() *Authority { return s.cfg.Authority }

// Methods implements [auth.Server]: cephx alone.
func (s *Server) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{auth.Cephx}
}

// Modes implements [auth.Server].
func (s *Server) Modes(_ context.Context, peer wire.EntityType, m auth.Method) (allowed, announced []auth.Mode) {
	modes := modesFor(s.cfg.Modes, s.cfg.Own, peer)
	if m != auth.Cephx {
		return nil, modes
	}
	return modes, modes
}

// Start implements [auth.Server].
func (s *Server) Start(_ context.Context, peer wire.EntityType, m auth.Method, mode auth.Mode) (auth.ServerExchange, error) {
	if m != auth.Cephx {
		return nil, fmt.Errorf("%w: %v", auth.ErrNoMethod, m)
	}
	if mode != auth.CRC && mode != auth.Secure {
		return nil, fmt.Errorf("%w: %v", auth.ErrNoMode, mode)
	}
	return &serverExchange{s: s, peer: peer, mode: mode}, nil
}

// serverExchange is the acceptor's side of one exchange: the login of a [Session], or the
// check of an authorizer, as the first payload demands, in msgr2 and msgr1 alike. An error
// ends it.
type serverExchange struct {
	s          *Server
	peer       wire.EntityType
	mode       auth.Mode
	session    *Session
	challenge  uint64 // that a second authorizer answers
	challenged bool
	over       bool
}

// Handle implements [auth.ServerExchange].
func (e *serverExchange) Handle(_ context.Context, payload []byte) (reply []byte, res *auth.Result, err error) {
	switch {
	case e.over:
		return nil, nil, fmt.Errorf("payload after the end: %w", errOutOfOrder)
	case e.session != nil:
		reply, res, err = e.finishLogin(payload)
	case e.challenged:
		reply, res, err = e.verify(payload)
	default:
		reply, res, err = e.begin(payload)
	}
	e.over = res != nil || err != nil
	return reply, res, err
}

func (e *serverExchange) begin(payload []byte) ([]byte, *auth.Result, error) {
	if len(payload) == 0 {
		return nil, nil, malformed("empty payload")
	}
	switch m := payload[0]; {
	case m >= modeAuthorizer && m <= modeAuthorizerMax:
		return e.verify(payload)
	case m >= modeLogin && m <= modeLoginMax && e.s.cfg.Authority != nil:
		name, id, err := decodeLoginStart(payload)
		if err != nil {
			return nil, nil, err
		}
		e.session = &Session{a: e.s.cfg.Authority}
		reply, err := e.session.start(name, id)
		return reply, nil, err
	default:
		return nil, nil, malformed(fmt.Sprintf("auth mode %d", m))
	}
}

func (e *serverExchange) finishLogin(payload []byte) ([]byte, *auth.Result, error) {
	reply, res, err := e.session.handleLogin(payload, e.mode)
	if err != nil {
		return nil, nil, err
	}
	if err := e.accept(e.session.name); err != nil {
		res.Wipe()
		return nil, nil, err
	}
	return reply, res, nil
}

// verify takes an authorizer. The first one is answered with a challenge, the second one with
// nonce + 1 and, in mode secure, with the connection secret.
func (e *serverExchange) verify(payload []byte) (reply []byte, res *auth.Result, err error) {
	r := wire.NewReader(payload)
	h, sealed := readAuthorizer(r)
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("authorizer: %w", err)
	}
	c, a, err := h.open(sealed, service(e.s.cfg.Own), e.s.cfg.Secrets, e.s.cfg.Now, e.s.cfg.TicketGrace)
	if err != nil {
		return nil, nil, err
	}
	defer c.sessionKey.Wipe()
	rand := e.s.cfg.Rand
	if !e.challenged {
		if e.challenge, err = randomU64(rand); err != nil {
			return nil, nil, err
		}
		e.challenged = true
		reply, err = sealChallenge(c.sessionKey, e.challenge, rand)
		return reply, nil, err
	}
	if !a.haveChallenge || !equalU64(a.answer, e.challenge+1) {
		return nil, nil, fmt.Errorf("authorizer of %v: %w", c.name, errChallenge)
	}
	caps, err := c.capsText()
	if err != nil {
		return nil, nil, fmt.Errorf("authorizer of %v: %w", c.name, err)
	}
	if err := e.accept(c.name); err != nil {
		return nil, nil, err
	}
	var secret []byte
	if e.mode == auth.Secure {
		secret = make([]byte, connectionSecretSize)
		err = random(rand, secret)
	}
	if err == nil {
		reply, err = sealReply(c.sessionKey, a.nonce, secret, rand)
	}
	if err != nil {
		clear(secret)
		return nil, nil, err
	}
	return reply, &auth.Result{
		SessionKey: c.sessionKey.Secret(), ConnectionSecret: secret, GlobalID: c.globalID,
		Entity: c.name, Mode: e.mode, Method: auth.Cephx, Caps: caps,
	}, nil
}

func (e *serverExchange) accept(name wire.EntityName) error {
	if e.s.cfg.Accept == nil {
		return nil
	}
	if err := e.s.cfg.Accept(e.peer, name); err != nil {
		return fmt.Errorf("%v as %v: %w", e.peer, name, err)
	}
	return nil
}
