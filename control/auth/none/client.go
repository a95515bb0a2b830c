package none

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The first byte of the payload says which form it has: 1 to 9 an authorizer for a
// service, 10 to 19 a request to a monitor.
const (
	formAuthorizer    = 1
	formAuthorizerMax = 9
	formMon           = 10
	formMonMax        = 19
)

// Client is the connector's side. It remembers the global id that a monitor has
// assigned and presents it from then on. It implements [auth.Client].
type Client struct {
	name     wire.EntityName
	globalID atomic.Uint64
}

// NewClient returns a client that calls itself name. The global id is 0 until a monitor
// has assigned one or [Client.SetGlobalID] was called.
func NewClient(name wire.EntityName) *Client { return &Client{name: name} }

// GlobalID returns the global id presented to peers; 0 if there is none yet.
func (c *Client) GlobalID() uint64 { return c.globalID.Load() }

// SetGlobalID sets the global id presented to peers from the next exchange on.
func (c *Client) SetGlobalID(id uint64) { c.globalID.Store(id) }

// Start implements [auth.Client]. It never blocks and never fails.
func (c *Client) Start(_ context.Context, peer wire.EntityType) (auth.ClientExchange, error) {
	return &clientExchange{client: c, toMon: peer == wire.Mon && c.name.Type != wire.Mon}, nil
}

type clientExchange struct {
	client *Client
	toMon  bool // monitors authenticate to each other as to any service
}

// Request implements [auth.ClientExchange].
func (x *clientExchange) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	form := byte(formAuthorizer)
	if x.toMon {
		form = formMon
	}
	p := payload{form: form, name: x.client.name, globalID: x.client.GlobalID()}
	return auth.None, []auth.Mode{auth.CRC}, p.appendTo(nil), nil
}

// BadMethod implements [auth.ClientExchange]. It always gives up, as there is no other offer.
func (x *clientExchange) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	return auth.BadMethod(m, result, methods, modes)
}

// ReplyMore implements [auth.ClientExchange]. The method has one round only.
func (x *clientExchange) ReplyMore(context.Context, []byte) ([]byte, error) {
	return nil, fmt.Errorf("%w: method none has no further round", wire.ErrMalformed)
}

// Done implements [auth.ClientExchange]. The payload is empty from every known peer and
// is not looked at.
func (x *clientExchange) Done(_ context.Context, globalID uint64, mode auth.Mode, _ []byte) (*auth.Result, error) {
	if x.toMon && globalID != 0 {
		x.client.SetGlobalID(globalID)
	}
	return &auth.Result{GlobalID: globalID, Entity: x.client.name, Mode: mode, Method: auth.None}, nil
}
