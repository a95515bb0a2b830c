package cephx

import (
	"fmt"
	"io"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

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
	service  Service
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
	h.service = Service(r.U32())
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
