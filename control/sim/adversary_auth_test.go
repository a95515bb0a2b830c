//go:build !race

package sim_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// proof is an authentication method that proves names: the acceptor sends a
// challenge, and each name has a secret. It stands for cephx, whose number it has,
// without its tickets.
type proof struct {
	name wire.EntityName // whose
	seed uint64
	made atomic.Uint64 // challenges
}

// proofKey signs the handshake of a name that was challenged: who accepts knows
// it, as a service knows the session key in a ticket for it.
//
// It has the size of the keys of cephx, which sign messages in msgr1.
func proofKey(name wire.EntityName, challenge []byte) []byte {
	return mac(mac([]byte("secret"), []byte(name.String())), challenge)[:16]
}

// proofOf answers the challenge.
func proofOf(key []byte) []byte { return mac(key, []byte("proof")) }

func mac(key, text []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(text)
	return m.Sum(nil)
}

// proofServer and proofClient are the two sides of it.
type (
	proofServer struct{ *proof }
	proofClient struct{ *proof }
)

func (proofServer) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{auth.Cephx}
}

func (proofServer) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return []auth.Mode{auth.CRC}, []auth.Mode{auth.CRC}
}

func (p proofServer) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return &proofServing{proof: p.proof}, nil
}

type proofServing struct {
	*proof
	name      wire.EntityName
	challenge []byte
}

func (x *proofServing) Handle(_ context.Context, payload []byte) ([]byte, *auth.Result, error) {
	if x.challenge == nil {
		r := wire.NewReader(payload)
		x.name = r.EntityName()
		if err := r.Err(); err != nil {
			return nil, nil, &auth.Refused{Errno: auth.EACCES, Reason: err.Error()}
		}
		text := binary.LittleEndian.AppendUint64(nil, x.made.Add(1))
		x.challenge = mac(binary.LittleEndian.AppendUint64(nil, x.seed), text)
		return x.challenge, nil, nil
	}
	key := proofKey(x.name, x.challenge)
	if !hmac.Equal(payload, proofOf(key)) {
		return nil, nil, &auth.Refused{Errno: auth.EACCES, Reason: "wrong proof"}
	}
	return nil, &auth.Result{Entity: x.name, SessionKey: key}, nil
}

func (p proofClient) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) {
	return &proofDialling{proof: p.proof}, nil
}

type proofDialling struct {
	*proof
	key []byte
}

func (x *proofDialling) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	return auth.Cephx, []auth.Mode{auth.CRC}, x.name.AppendTo(nil), nil
}

func (x *proofDialling) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	return auth.BadMethod(m, result, methods, modes)
}

func (x *proofDialling) ReplyMore(_ context.Context, challenge []byte) ([]byte, error) {
	x.key = proofKey(x.name, challenge)
	return proofOf(x.key), nil
}

func (x *proofDialling) Done(context.Context, uint64, auth.Mode, []byte) (*auth.Result, error) {
	key := x.key
	if key == nil {
		key = []byte("none was agreed.") // nobody can sign with it
	}
	return &auth.Result{Entity: x.name, SessionKey: append([]byte(nil), key...)}, nil
}
