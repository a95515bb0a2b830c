package cephx

import (
	"fmt"
	"io"

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
	step  authorizerStep
}

type authorizerStep uint8

const (
	authorizerNew authorizerStep = iota
	authorizerSent
	authorizerAnswered
	authorizerDone
)

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
	if a.step != authorizerNew {
		return nil, fmt.Errorf("authorizer: %w", errOutOfOrder)
	}
	a.step = authorizerSent
	return a.payload(authorize{nonce: a.nonce})
}

// answer implements steps.
func (a *authorizer) answer(challenge []byte) ([]byte, error) {
	if a.step != authorizerSent {
		return nil, fmt.Errorf("authorizer: challenge: %w", errOutOfOrder)
	}
	c, err := openChallenge(a.key, challenge)
	if err != nil {
		return nil, err
	}
	a.step = authorizerAnswered
	return a.payload(authorize{nonce: a.nonce, haveChallenge: true, answer: c + 1})
}

func (a *authorizer) payload(content authorize) ([]byte, error) {
	var buf [32]byte
	plain := content.appendTo(buf[:0])
	defer clear(buf[:])
	return a.key.sealPrefixed(useAuthorize, a.head.appendTo(nil), plain, a.c.rand)
}

// open verifies the reply of the service, which proves that the service could open the
// ticket, and returns the connection secret if there is one; the caller wipes it. A
// service that has not challenged us is refused.
func (a *authorizer) open(reply []byte) (secret []byte, err error) {
	if a.step != authorizerAnswered {
		return nil, fmt.Errorf("authorizer: done without a challenge: %w", errOutOfOrder)
	}
	got, secret, err := openReply(a.key, reply)
	if err != nil {
		clear(secret)
		return nil, fmt.Errorf("%w: %w", ErrServerProof, err)
	}
	if !equalU64(got, a.nonce+1) {
		clear(secret)
		return nil, ErrServerProof
	}
	a.step = authorizerDone
	return secret, nil
}

// done implements steps. The global id is that of the ticket.
func (a *authorizer) done(_ uint64, mode auth.Mode, reply []byte) (*auth.Result, error) {
	secret, err := a.open(reply)
	if err != nil {
		return nil, err
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
	outer := wire.NewReader(p)
	bare := outer.Blob()
	if err := outer.Err(); err != nil {
		return 0, nil, fmt.Errorf("authorizer reply: %w", err)
	}
	err = session.openDecode(useReply, bare, func(r *wire.Reader) {
		v := readVersion(r, "authorizer reply", replyVersion)
		noncePlus1 = r.U64()
		if v >= replyVersionSecret {
			secret = readSecret(r)
		}
	})
	return noncePlus1, secret, err
}
