package cephx

import (
	"fmt"
	"io"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// authorizer is the connector's side of one exchange with a service, in msgr2 and msgr1
// alike. It belongs to one goroutine. Each error ends it.
type authorizer struct {
	c     *Client
	head  authorizerHead
	key   Key
	nonce uint64
}

// newAuthorizer takes over the key.
func newAuthorizer(c *Client, head authorizerHead, key Key) (*authorizer, error) {
	nonce, err := randomU64(c.rand)
	if err != nil {
		key.Wipe()
		return nil, err
	}
	return &authorizer{c: c, head: head, key: key, nonce: nonce}, nil
}

// first implements steps: the authorizer without an answer to a challenge.
func (a *authorizer) first() ([]byte, error) {
	return a.payload(authorize{nonce: a.nonce})
}

// answer implements steps.
func (a *authorizer) answer(challenge []byte) ([]byte, error) {
	c, err := openChallenge(a.key, challenge)
	if err != nil {
		return nil, err
	}
	return a.payload(authorize{nonce: a.nonce, haveChallenge: true, answer: c + 1})
}

func (a *authorizer) payload(content authorize) ([]byte, error) {
	var buf [32]byte
	plain := content.appendTo(buf[:0])
	defer clear(buf[:])
	return a.key.sealPrefixed(useAuthorize, a.head.appendTo(nil), plain, a.c.rand)
}

// done implements steps: the reply proves that the service could open the ticket. The global id
// is that of the ticket.
func (a *authorizer) done(_ uint64, mode auth.Mode, reply []byte) (*auth.Result, error) {
	got, secret, err := openReply(a.key, reply)
	if err != nil {
		clear(secret)
		return nil, fmt.Errorf("%w: %w", ErrServerProof, err)
	}
	if !equalU64(got, a.nonce+1) {
		clear(secret)
		return nil, ErrServerProof
	}
	if secret, err = secretFor(mode, secret); err != nil {
		return nil, err
	}
	return &auth.Result{SessionKey: a.key.Secret(), ConnectionSecret: secret, GlobalID: a.head.globalID}, nil
}

// again implements steps. A service that refuses the ticket may have lost the secret that made
// it; the ticket is then renewed before its time.
func (a *authorizer) again(result int32, err error) (steps, error) {
	if err == nil {
		return a.c.newAuthorizer(a.head.service)
	}
	if result == auth.EACCES {
		a.c.invalidate(a.head.service, a.head.ticket)
	}
	return nil, err
}

// Wipe overwrites the session key of the authorizer. The client keeps its ticket.
func (a *authorizer) Wipe() { a.key.Wipe() }

const (
	authorizeVersion     = 2
	replyVersion         = 1
	replyVersionSecret   = 2
	connectionSecretSize = 64
)

// authorizerHead is the part of an authorizer that names its owner. It is the same in both
// rounds.
type authorizerHead struct {
	globalID uint64
	service  service
	ticket   ticket
}

// open opens the ticket of an authorizer for a service, and verifies that its sender has the
// session key of the ticket (Ceph's CephxProtocol.cc). For grace after its expiry a ticket is good,
// if that is negative for ever.
func (h *authorizerHead) open(
	sealed []byte, own service, secrets SecretSource, now func() time.Time, grace time.Duration,
) (c ticketContent, a authorize, err error) {
	if h.service != own {
		return c, a, fmt.Errorf("authorizer for %v: %w", h.service, errForeignTicket)
	}
	secret, ok := secrets.Secret(wire.EntityType(own), h.ticket.secretID)
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
	case grace >= 0 && !now().Before(c.expires.Add(grace)):
		err = fmt.Errorf("since %v: %w", c.expires, errTicketExpired)
	default:
		return c, a, nil
	}
	c.sessionKey.Wipe()
	return ticketContent{}, authorize{}, fmt.Errorf("authorizer of %v: %w", c.name, err)
}

func (h *authorizerHead) appendTo(dst []byte) []byte {
	dst = append(dst, structVersion)
	dst = le.AppendUint64(dst, h.globalID)
	dst = le.AppendUint32(dst, uint32(h.service))
	return h.ticket.appendTo(dst)
}

// readAuthorizer reads an authorizer; sealed is the bare envelope of authorize and
// aliases the input.
func readAuthorizer(r *wire.Reader) (h authorizerHead, sealed []byte) {
	if v := r.U8(); r.Err() == nil && (v < modeAuthorizer || v > modeAuthorizerMax) {
		r.Fail(malformed(fmt.Sprintf("authorizer of version %d", v)))
	}
	h.globalID = r.U64()
	h.service = service(r.U32())
	h.ticket = readTicket(r)
	sealed = r.Blob()
	return h, sealed
}

// authorize proves that the connector has the session key of the ticket.
type authorize struct {
	nonce         uint64
	haveChallenge bool
	// answer is the challenge + 1, modulo 2^64; 0 without a challenge.
	answer uint64
}

func (a authorize) appendTo(dst []byte) []byte {
	dst = le.AppendUint64(append(dst, authorizeVersion), a.nonce)
	dst = wire.AppendBool(dst, a.haveChallenge)
	return le.AppendUint64(dst, a.answer)
}

func readAuthorize(r *wire.Reader) authorize {
	v := readVersion(r, "authorize", 1)
	a := authorize{nonce: r.U64()}
	if v >= 2 {
		a.haveChallenge = r.Bool()
		a.answer = r.U64()
	}
	return a
}

// sealChallenge makes the authorizer challenge, a bare envelope.
func sealChallenge(session Key, challenge uint64, r io.Reader) ([]byte, error) {
	return session.seal(useChallenge, nil, le.AppendUint64([]byte{structVersion}, challenge), r)
}

func openChallenge(session Key, p []byte) (challenge uint64, err error) {
	err = session.openDecode(useChallenge, p, func(r *wire.Reader) {
		readVersion(r, "authorizer challenge", structVersion)
		challenge = r.U64()
	})
	return challenge, err
}

// sealReply makes the authorizer reply: nonce + 1 and, if there is one, the connection
// secret.
func sealReply(session Key, nonce uint64, secret []byte, r io.Reader) ([]byte, error) {
	plain := make([]byte, 0, 1+8+4+len(secret))
	defer func() { clear(plain) }()
	v := uint8(replyVersion)
	if len(secret) > 0 {
		v = replyVersionSecret
	}
	plain = le.AppendUint64(append(plain, v), nonce+1)
	if len(secret) > 0 {
		plain = wire.AppendBlob(plain, secret)
	}
	return session.sealPrefixed(useReply, nil, plain, r)
}

func openReply(session Key, p []byte) (noncePlus1 uint64, secret []byte, err error) {
	err = session.openPrefixed(useReply, p, func(r *wire.Reader) {
		v := readVersion(r, "authorizer reply", replyVersion)
		noncePlus1 = r.U64()
		if v >= replyVersionSecret {
			secret = readSecret(r)
		}
	})
	return noncePlus1, secret, err
}
