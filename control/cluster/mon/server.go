package mon

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"syscall"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// ServerConfig has the answers of a monitor of ours.
type ServerConfig struct {
	// Map is the monmap that clients are given; it must be safe for concurrent
	// use. Nil: clients get none, which is enough to ping and to renew tickets.
	// One of epoch 0 is not sent: there is none yet, and clients ask again.
	Map func() MonMap
	// Command carries out a command of the peer c, whose Auth has its name and caps. data is
	// its input, for example the file of "ceph -i", valid until Command returns. It runs on a
	// core: it must not block. A syscall.Errno in its error is the result, else EINVAL; its
	// text is the status, unless there is one. Nil: no command is known.
	Command func(c *control.Conn, command map[string]any, data []byte) (Output, error)
	// Authority logs clients of msgr1 in; Number gives those of method none a number, each time
	// another one. Without them such clients are refused.
	Authority *cephx.Authority
	Number    func() uint64
	// Status is the answer to a ping, as JSON; it runs on a core. Real monitors have "health"
	// and "mon_status". Nil: health alone.
	Status func() any
}

// NewServer returns a dispatcher with which a program is a monitor to clients:
// it answers MAuth of entities that log in by msgr1, or that logged in to a
// [cephx.Server] of an Authority, so that they can renew tickets and daemons can fetch rotating
// secrets; MMonGetMap and MMonSubscribe; commands; and MPing. All other messages
// it leaves to the next in the chain.
//
// Answers are made on the core; renewals cost a few blocks of AES or HMACs.
//
// At a v1 address nobody has proven a name when a session begins: peers there should have a lossy
// policy, as they have by default. A session that outlives its socket goes on with the next peer
// that claims its address.
func NewServer(cfg ServerConfig) *control.Dispatcher {
	return &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		var reply *control.Message
		switch m.Type {
		case typeAuth:
			var a authReply
			if res := c.Auth(); c.Info().Protocol == control.Msgr1 {
				a = cfg.login(c, m.Front)
			} else if res == nil {
				return false
			} else if session, ok := res.Session.(*cephx.Session); ok {
				a = answerAuth(session, m.Front)
			} else {
				return false
			}
			reply = a.message(m.TID)
		case typePing:
			reply = message(typePing, m.TID, 1, wire.AppendString(nil, cfg.status()))
		case typeMonGetMap:
			if cfg.Map == nil {
				return false
			}
			monmap := cfg.Map()
			if monmap.Epoch == 0 || !admitted(c) {
				return true
			}
			reply = mapMessage(monmap)
		case typeSubscribe:
			return cfg.subscribe(c, m.Front)
		case typeCommand:
			if !admitted(c) {
				return true
			}
			reply = cfg.command(c, m)
		default:
			return !admitted(c) // then the request has no answer
		}
		_ = c.Send(reply) // fails only if the connection has ended
		return true
	}}
}

// status is the answer to a ping.
func (cfg *ServerConfig) status() string {
	var about any = map[string]Health{"health": {"HEALTH_OK"}}
	if cfg.Status != nil {
		about = cfg.Status()
	}
	text, err := json.Marshal(about)
	if err != nil {
		return "{}" // the user's value cannot be JSON
	}
	return string(text)
}

// Health is how a cluster is, in the answer to a ping.
type Health struct {
	Status string `json:"status"` // HEALTH_OK, HEALTH_WARN or HEALTH_ERR
}

func answerAuth(s *cephx.Session, front []byte) authReply {
	method, payload, err := decodeAuth(front)
	a := authReply{method: auth.Cephx, globalID: s.GlobalID()}
	switch {
	case err != nil:
	case method != auth.Cephx:
		err = auth.ErrNoMethod
	default:
		a.payload, err = s.Handle(payload)
	}
	if err != nil {
		// The reason is not the peer's business.
		a.payload, a.result = nil, auth.Errno(err)
	}
	return a
}

func mapMessage(m MonMap) *control.Message {
	return message(typeMonMap, 0, 1, wire.AppendBlob(nil, m.AppendTo(nil)))
}

// subscribe answers with the present maps, which never change here.
func (cfg *ServerConfig) subscribe(c *control.Conn, front []byte) bool {
	subs, err := decodeSubscribe(front)
	if err != nil {
		return true
	}
	if start, ok := subs["monmap"]; ok && cfg.Map != nil {
		if m := cfg.Map(); m.Epoch > 0 && uint64(m.Epoch) >= start && admitted(c) {
			_ = c.Send(mapMessage(m)) // fails only if the connection has ended
		}
	}
	if _, ok := subs["config"]; ok && admitted(c) {
		_ = c.Send(message(typeConfig, 0, 1, le.AppendUint32(nil, 0)))
	}
	return true
}

func (cfg *ServerConfig) command(c *control.Conn, m *control.Message) *control.Message {
	text, err := decodeCommand(m.Front)
	var command map[string]any
	if err == nil {
		err = json.Unmarshal(text, &command)
	}
	var out Output
	switch {
	case err != nil:
	case cfg.Command == nil:
		err = errors.New("command not known")
	default:
		out, err = cfg.Command(c, command, m.Data)
	}
	var result int32
	if err != nil {
		errno := syscall.EINVAL
		errors.As(err, &errno)
		result = -int32(errno)
		if out.Status == "" {
			out.Status = err.Error()
		}
	}
	b := le.AppendUint32(appendPaxos(nil), uint32(result))
	b = wire.AppendString(b, out.Status)
	b = le.AppendUint32(b, 1)
	reply := message(typeCommandAck, m.TID, 1, wire.AppendBlob(b, text))
	reply.Data = out.Data
	return reply
}

// Clients of msgr1 come without an authorizer, and log in by MAuth. Before that they get
// answers to MAuth and MPing alone. The Auth of its connection has the state of a client.

// admitted says whether the peer may have more than MAuth and MPing.
func admitted(c *control.Conn) bool {
	if c.Info().Protocol != control.Msgr1 {
		return true // its handshake has ended
	}
	res := c.Auth()
	return res != nil && res.Entity != (wire.EntityName{})
}

// login answers an MAuth of a client of msgr1.
func (cfg *ServerConfig) login(c *control.Conn, front []byte) authReply {
	method, payload, err := decodeAuth(front)
	if err != nil {
		return authReply{result: auth.Errno(err)}
	}
	unproven := &auth.Result{Method: auth.Cephx, Mode: auth.CRC}
	s, started := c.Auth().Session.(*cephx.Session)
	switch {
	case method == 0 && cfg.Authority != nil:
		s, challenge, err := cfg.Authority.NewSession(payload)
		if err != nil {
			return authReply{method: auth.Cephx, result: auth.Errno(err)}
		}
		unproven.Session = s
		c.SetAuth(unproven)
		return authReply{method: auth.Cephx, globalID: s.GlobalID(), payload: challenge}
	case method == 0 && cfg.Number != nil:
		return cfg.loginNone(c, payload)
	case !started:
		return authReply{result: auth.EOPNOTSUPP}
	}
	a := answerAuth(s, front)
	unproven.Session = s
	res := cmp.Or(s.Result(), unproven)
	if claimed, proven := c.Info().PeerType, res.Entity.Type; claimed != wire.Client && proven != 0 && proven != claimed {
		// The connect message is only a claim: a daemon may act as a client, but no other peer as a daemon.
		res, a = unproven, authReply{method: auth.Cephx, result: auth.EACCES}
	}
	c.SetAuth(res)
	return a
}

// loginNone believes the name that the peer gives.
func (cfg *ServerConfig) loginNone(c *control.Conn, payload []byte) authReply {
	r := wire.NewReader(payload)
	r.U8()
	offered := slices.Contains(r.U32s(), uint32(auth.None))
	name, id := r.EntityName(), r.U64()
	switch {
	case r.Err() != nil:
		return authReply{method: auth.None, result: auth.EINVAL}
	case !offered || name == (wire.EntityName{}):
		return authReply{method: auth.None, result: auth.EOPNOTSUPP}
	}
	if id == 0 {
		id = cfg.Number()
	}
	c.SetAuth(&auth.Result{Method: auth.None, Mode: auth.CRC, Entity: name, GlobalID: id})
	return authReply{method: auth.None, globalID: id}
}
