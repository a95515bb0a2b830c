package none

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/layout"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// firstGlobalID is the first number of the built-in numbering, above the numbers of ranks and
// daemons.
const firstGlobalID = 4096

// ServerConfig configures a [Server]. The zero value is the server of any daemon but a
// monitor.
type ServerConfig struct {
	// Monitor makes the server hand out global ids and insist on the form of the payload,
	// as monitors do.
	Monitor bool
	// AssignGlobalID decides the global id of a connector that asks a monitor. proposed is its
	// id of before, or 0. It may block, must be safe for concurrent use, and refuses the
	// connector with an error, see [auth.Errno]. Nil grants every proposal and otherwise counts
	// up from 4097.
	AssignGlobalID func(ctx context.Context, name wire.EntityName, proposed uint64) (uint64, error)
}

// Server is the acceptor's side. It implements [auth.Server].
type Server struct {
	cfg    ServerConfig
	lastID atomic.Uint64
}

// NewServer returns a server. It keeps the function in cfg.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{}
	s.lastID.Store(firstGlobalID)
	if cfg.AssignGlobalID == nil {
		cfg.AssignGlobalID = s.assign
	}
	s.cfg = cfg
	return s
}

func (s *Server) assign(_ context.Context, _ wire.EntityName, proposed uint64) (uint64, error) {
	if proposed != 0 {
		return proposed, nil
	}
	return s.lastID.Add(1), nil
}

// Methods implements [auth.Server].
func (s *Server) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{auth.None}
}

// Modes implements [auth.Server]. Like real daemons it announces mode secure, too, which method
// none cannot have.
func (s *Server) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	if s.cfg.Monitor {
		return []auth.Mode{auth.CRC}, []auth.Mode{auth.Secure, auth.CRC}
	}
	return []auth.Mode{auth.CRC}, []auth.Mode{auth.CRC, auth.Secure}
}

// Start implements [auth.Server]. It never blocks.
func (s *Server) Start(_ context.Context, _ wire.EntityType, m auth.Method, mode auth.Mode) (auth.ServerExchange, error) {
	if m != auth.None {
		return nil, fmt.Errorf("%w: %v", auth.ErrNoMethod, m)
	}
	return &serverExchange{server: s, mode: mode}, nil
}

type serverExchange struct {
	server *Server
	mode   auth.Mode
}

// Handle implements [auth.ServerExchange]: the first payload decides.
func (x *serverExchange) Handle(ctx context.Context, b []byte) ([]byte, *auth.Result, error) {
	p, err := decodePayload(b)
	if err != nil {
		return nil, nil, &auth.Refused{Errno: auth.EACCES, Reason: err.Error()}
	}
	id := p.globalID
	if x.server.cfg.Monitor {
		switch {
		case p.form >= formMon && p.form <= formMonMax:
			id, err = x.server.cfg.AssignGlobalID(ctx, p.name, p.globalID)
			if err != nil {
				return nil, nil, fmt.Errorf("global id for %v: %w", p.name, err)
			}
		case p.form >= formAuthorizer && p.form <= formAuthorizerMax:
			id = 0 // a monitor does not know the global ids of authorizers
		default:
			return nil, nil, &auth.Refused{Errno: auth.EACCES, Reason: fmt.Sprintf("payload form %d", p.form)}
		}
	}
	return nil, &auth.Result{GlobalID: id, Entity: p.name, Mode: x.mode, Method: auth.None}, nil
}

// payload is the connector's payload; both forms have the same fields.
type payload struct {
	form     byte
	name     wire.EntityName
	globalID uint64
}

func (p *payload) Layout(l *layout.Coder) { l.Fields(&p.form, &p.name, &p.globalID) }

// decodePayload ignores bytes after the known fields.
func decodePayload(b []byte) (p payload, err error) {
	r := wire.NewReader(b)
	layout.Read(r, &p)
	if err := r.Err(); err != nil {
		return payload{}, fmt.Errorf("auth none: %w", err)
	}
	return p, nil
}

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
	return auth.None, []auth.Mode{auth.CRC}, layout.Append(nil, &p), nil
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
