package nodetest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Proof is an authentication method that proves names: the acceptor sends a challenge, and
// each name has a secret, which everybody knows. It stands for cephx, whose number it has,
// without its tickets. It is used by one connector and one acceptor, in any number of handshakes.
type Proof struct {
	// Name is that of the connector.
	Name wire.EntityName
	// Modes are offered and allowed.
	Modes []auth.Mode
	// Shy has the connector ask for method none first, which the acceptor does not allow: so
	// a handshake has every frame that authentication can have.
	Shy bool
	// Seed decides the challenges.
	Seed uint64

	made atomic.Uint64 // challenges
}

// Client is the connector's side.
func (p *Proof) Client() auth.Client { return proofClient{p} }

// Server is the acceptor's side.
func (p *Proof) Server() auth.Server { return proofServer{p} }

// ProofKey is the session key of a name that was challenged: who accepts knows it, as a
// service knows the session key in a ticket for it. It has the size of the keys of cephx,
// which sign messages in msgr1.
func ProofKey(name wire.EntityName, challenge []byte) []byte {
	return MAC(MAC([]byte("secret"), []byte(name.String())), challenge)[:16]
}

// ProofOf answers the challenge that led to a key.
func ProofOf(key []byte) []byte { return MAC(key, []byte("proof")) }

// MAC is the HMAC-SHA256 of a text.
func MAC(key, text []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(text)
	return m.Sum(nil)
}

// result is that of a handshake; its receiver wipes it.
func (p *Proof) result(name wire.EntityName, key []byte, mode auth.Mode) *auth.Result {
	res := &auth.Result{Entity: name, SessionKey: slices.Clone(key), Mode: mode, Method: auth.Cephx}
	if mode == auth.Secure {
		res.ConnectionSecret = append(MAC(key, []byte("one")), MAC(key, []byte("two"))...)
	}
	return res
}

type proofServer struct{ *Proof }

func (proofServer) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{auth.Cephx}
}

func (s proofServer) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return s.Proof.Modes, s.Proof.Modes
}

func (s proofServer) Start(_ context.Context, _ wire.EntityType, _ auth.Method, mode auth.Mode) (auth.ServerExchange, error) {
	return &proofServing{Proof: s.Proof, mode: mode}, nil
}

type proofServing struct {
	*Proof
	mode      auth.Mode
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
		x.challenge = MAC(binary.LittleEndian.AppendUint64(nil, x.Seed), text)
		return x.challenge, nil, nil
	}
	key := ProofKey(x.name, x.challenge)
	if !hmac.Equal(payload, ProofOf(key)) {
		return nil, nil, &auth.Refused{Errno: auth.EACCES, Reason: "wrong proof"}
	}
	return nil, x.result(x.name, key, x.mode), nil
}

type proofClient struct{ *Proof }

func (c proofClient) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) {
	return &proofDialling{Proof: c.Proof, shy: c.Shy}, nil
}

type proofDialling struct {
	*Proof
	shy bool // still
	key []byte
}

func (x *proofDialling) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	if x.shy {
		return auth.None, x.Modes, nil, nil
	}
	return auth.Cephx, x.Modes, x.Name.AppendTo(nil), nil
}

func (x *proofDialling) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	if !x.shy {
		return auth.BadMethod(m, result, methods, modes)
	}
	x.shy = false
	return nil
}

func (x *proofDialling) ReplyMore(_ context.Context, challenge []byte) ([]byte, error) {
	x.key = ProofKey(x.Name, challenge)
	return ProofOf(x.key), nil
}

func (x *proofDialling) Done(_ context.Context, _ uint64, mode auth.Mode, _ []byte) (*auth.Result, error) {
	key := x.key
	if key == nil {
		key = []byte("none was agreed.") // nobody can sign with it
	}
	return x.result(x.Name, key, mode), nil
}
