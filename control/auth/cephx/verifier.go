package cephx

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// verifier is the service's side of one exchange with a connector that shows a ticket, in
// msgr2 and msgr1 alike. It belongs to one goroutine. An error ends it.
type verifier struct {
	s          *Server
	challenge  uint64
	challenged bool
	over       bool
}

// principal is a proven entity, and the secrets that we share with it.
type principal struct {
	Entity   wire.EntityName
	GlobalID uint64
	// Caps are the encoded capabilities for this service; see [CapsText].
	Caps       []byte
	SessionKey Key
	// secret is behind two pointers for the same reason as in Key.
	secret **[connectionSecretSize]byte
}

// Wipe overwrites the secrets.
func (p *principal) Wipe() {
	p.SessionKey.Wipe()
	if p.secret != nil {
		clear((*p.secret)[:])
	}
}

// connectionSecret returns a copy of the connection secret, which the caller wipes; nil
// unless the mode is [auth.Secure].
func (p *principal) connectionSecret() []byte {
	if p.secret == nil {
		return nil
	}
	return append([]byte(nil), (*p.secret)[:]...)
}

// newVerifier begins an exchange.
func (s *Server) newVerifier() *verifier { return &verifier{s: s} }

// Handle takes an authorizer. The first one is answered with a challenge, principal nil;
// the second one with the authorizer reply and the principal, which the caller wipes.
// mode is that of the connection.
func (v *verifier) Handle(payload []byte, mode auth.Mode) (reply []byte, p *principal, err error) {
	defer func() {
		if err != nil || p != nil {
			v.over, v.challenge = true, 0
		}
	}()
	if v.over {
		return nil, nil, fmt.Errorf("authorizer: %w", ErrOutOfOrder)
	}
	r := wire.NewReader(payload)
	h, sealed := readAuthorizer(r)
	if err := r.Err(); err != nil {
		return nil, nil, fmt.Errorf("authorizer: %w", err)
	}
	c, a, err := v.s.checkAuthorizer(&h, sealed)
	if err != nil {
		return nil, nil, err
	}
	defer c.sessionKey.Wipe()
	if !v.challenged {
		reply, err := v.sendChallenge(c.sessionKey)
		return reply, nil, err
	}
	if !a.haveChallenge || !equalU64(a.answer, v.challenge+1) {
		return nil, nil, fmt.Errorf("authorizer of %v: %w", c.name, ErrChallenge)
	}
	p = &principal{Entity: c.name, GlobalID: c.globalID, Caps: c.effectiveCaps(), SessionKey: c.sessionKey.Clone()}
	var secret []byte
	if mode == auth.Secure {
		s := new([connectionSecretSize]byte)
		p.secret, secret = &s, s[:]
		if err := random(v.s.cfg.Rand, secret); err != nil {
			p.Wipe()
			return nil, nil, err
		}
	}
	if reply, err = sealReply(p.SessionKey, a.nonce, secret, v.s.cfg.Rand); err != nil {
		p.Wipe()
		return nil, nil, err
	}
	return reply, p, nil
}

func (v *verifier) sendChallenge(session Key) ([]byte, error) {
	c, err := randomU64(v.s.cfg.Rand)
	if err != nil {
		return nil, err
	}
	v.challenge, v.challenged = c, true
	return sealChallenge(session, c, v.s.cfg.Rand)
}

// checkAuthorizer opens a ticket and verifies that its sender has its session key (Ceph's
// CephxProtocol.cc).
func (s *Server) checkAuthorizer(h *authorizerHead, sealed []byte) (c ticketContent, a authorize, err error) {
	if h.service != Service(s.cfg.Own) {
		return c, a, fmt.Errorf("authorizer for %v: %w", h.service, errForeignTicket)
	}
	secret, ok := s.cfg.Secrets.Secret(h.service, h.ticket.secretID)
	if !ok {
		return c, a, fmt.Errorf("authorizer: %w: %d", errUnknownSecret, h.ticket.secretID)
	}
	defer secret.Wipe()
	if c, err = openTicket(h.ticket, secret); err != nil {
		return c, a, fmt.Errorf("authorizer: %w", err)
	}
	err = c.sessionKey.openDecode(useAuthorize, sealed, func(r *wire.Reader) { a = readAuthorize(r) })
	switch {
	case err != nil:
	case c.globalID != h.globalID:
		err = fmt.Errorf("global id %d with a ticket of %d: %w", h.globalID, c.globalID, errForeignTicket)
	case s.cfg.TicketGrace >= 0 && !s.cfg.Now().Before(c.expires.Add(s.cfg.TicketGrace)):
		err = fmt.Errorf("since %v: %w", c.expires, errTicketExpired)
	default:
		return c, a, nil
	}
	c.sessionKey.Wipe()
	return ticketContent{}, authorize{}, fmt.Errorf("authorizer of %v: %w", c.name, err)
}
