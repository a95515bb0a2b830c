package none

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
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

func (p payload) appendTo(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(p.name.AppendTo(append(dst, p.form)), p.globalID)
}

// decodePayload ignores bytes after the known fields.
func decodePayload(b []byte) (payload, error) {
	r := wire.NewReader(b)
	p := payload{form: r.U8(), name: r.EntityName(), globalID: r.U64()}
	if err := r.Err(); err != nil {
		return payload{}, fmt.Errorf("auth none: %w", err)
	}
	return p, nil
}
