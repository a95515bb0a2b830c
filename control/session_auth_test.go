package control_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// chatty is an authentication method for tests of mode secure. It proves
// nothing, but it uses every frame that authentication can have: a refused
// request, a challenge, and keys in the end.
type chatty struct {
	name  wire.EntityName
	modes []auth.Mode
}

var errChattyAnswer = errors.New("not the answer to the challenge")

const (
	chattyMethod = auth.Cephx // the number only
	chattyKey    = 16         // bytes of the session key; the connection secret follows it
)

// Start implements auth.Client.
func (c chatty) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) {
	return &chattyClient{chatty: c}, nil
}

type chattyClient struct {
	chatty
	refused bool
}

func (x *chattyClient) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	if !x.refused {
		return auth.None, x.modes, nil, nil // the server does not allow it
	}
	return chattyMethod, x.modes, []byte(x.name.String()), nil
}

func (x *chattyClient) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	if x.refused {
		return auth.BadMethod(m, result, methods, modes)
	}
	x.refused = true
	return nil
}

func (x *chattyClient) ReplyMore(_ context.Context, challenge []byte) ([]byte, error) {
	return challenge, nil
}

func (x *chattyClient) Done(_ context.Context, globalID uint64, mode auth.Mode, keys []byte) (*auth.Result, error) {
	return chattyResult(keys, x.name, globalID, mode), nil
}

// chattyResult splits a copy of the keys.
func chattyResult(keys []byte, name wire.EntityName, globalID uint64, mode auth.Mode) *auth.Result {
	return &auth.Result{
		SessionKey: bytes.Clone(keys[:chattyKey]), ConnectionSecret: bytes.Clone(keys[chattyKey:]),
		GlobalID: globalID, Entity: name, Mode: mode, Method: chattyMethod,
	}
}

// chattyServer is the other side of chatty.
type chattyServer struct {
	modes []auth.Mode
	ids   atomic.Uint64
}

func (*chattyServer) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{chattyMethod}
}

func (s *chattyServer) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return s.modes, s.modes
}

func (s *chattyServer) Start(_ context.Context, _ wire.EntityType, _ auth.Method, mode auth.Mode) (auth.ServerExchange, error) {
	return &chattyAcceptor{id: s.ids.Add(1), mode: mode}, nil
}

type chattyAcceptor struct {
	id        uint64
	mode      auth.Mode
	name      wire.EntityName
	challenge []byte
}

func (x *chattyAcceptor) Handle(_ context.Context, payload []byte) (reply []byte, res *auth.Result, err error) {
	if x.challenge == nil {
		if x.name, err = wire.ParseEntityName(string(payload)); err != nil {
			return nil, nil, err
		}
		x.challenge = randomBytes(16)
		return bytes.Clone(x.challenge), nil, nil
	}
	if !bytes.Equal(payload, x.challenge) {
		return nil, nil, errChattyAnswer
	}
	keys := randomBytes(chattyKey + auth.ConnectionSecretMin)
	return keys, chattyResult(keys, x.name, x.id, x.mode), nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it does not fail
	return b
}
