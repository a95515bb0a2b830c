package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// shown is an authentication that gives both sides keys for mode secure and protects nothing:
// the secret is sent in clear. With it the benchmark measures the cost of encryption without a
// cluster that issues tickets.
type shown struct{}

// shownMethod is no number that a real peer uses.
const shownMethod auth.Method = 0x62656e63

// errSecret means that a peer does not keep to the method.
var errSecret = errors.New("shown secret")

const (
	secretSize  = 64 // that of real monitors
	sessionSize = 16
)

// NewSecureServer returns the authentication of a server that forces mode secure, for clients
// of this package. It protects nothing.
func NewSecureServer() auth.Server { return shown{} }

// Methods implements auth.Server.
func (shown) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{shownMethod}
}

// Modes implements auth.Server.
func (shown) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return []auth.Mode{auth.Secure}, []auth.Mode{auth.Secure}
}

// Start implements auth.Server.
func (shown) Start(context.Context, wire.EntityType, auth.Method, auth.Mode) (auth.ServerExchange, error) {
	return shown{}, nil
}

// Handle implements auth.ServerExchange: it draws a secret and sends it.
func (shown) Handle(context.Context, []byte) ([]byte, *auth.Result, error) {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails
	res, err := result(secret)
	return secret, res, err
}

// shownClient takes the secret that the server sends.
type shownClient struct{}

// Start implements auth.Client.
func (shownClient) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) {
	return shownClient{}, nil
}

// Request implements auth.ClientExchange.
func (shownClient) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	return shownMethod, []auth.Mode{auth.Secure}, nil, nil
}

// BadMethod implements auth.ClientExchange.
func (shownClient) BadMethod(_ context.Context, m auth.Method, code int32, methods []auth.Method, modes []auth.Mode) error {
	return auth.BadMethod(m, code, methods, modes)
}

// ReplyMore implements auth.ClientExchange.
func (shownClient) ReplyMore(context.Context, []byte) ([]byte, error) {
	return nil, fmt.Errorf("%w: no further round", errSecret)
}

// Done implements auth.ClientExchange.
func (shownClient) Done(_ context.Context, _ uint64, _ auth.Mode, secret []byte) (*auth.Result, error) {
	return result(secret)
}

// result is the result of a secret, on either side.
func result(secret []byte) (*auth.Result, error) {
	if len(secret) != secretSize {
		return nil, fmt.Errorf("%w: secret of %d bytes, not %d", errSecret, len(secret), secretSize)
	}
	secret = append([]byte(nil), secret...)
	return &auth.Result{SessionKey: secret[:sessionSize], ConnectionSecret: secret[sessionSize:], Entity: entity(), Mode: auth.Secure, Method: shownMethod}, nil
}
