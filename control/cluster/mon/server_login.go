package mon

import (
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

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
	s, started := c.Auth().Session.(*cephx.Session)
	switch {
	case method == 0 && cfg.Authority != nil:
		s = cfg.Authority.NewSession()
		a := authReply{method: auth.Cephx}
		if a.payload, err = s.StartMAuth(payload); err != nil {
			a.result = auth.Errno(err)
			return a
		}
		c.SetAuth(&auth.Result{Method: auth.Cephx, Mode: auth.CRC, Session: s})
		a.globalID = s.GlobalID()
		return a
	case method == 0 && cfg.Number != nil:
		return cfg.loginNone(c, payload)
	case !started:
		return authReply{result: auth.EOPNOTSUPP}
	}
	a := answerAuth(s, front)
	if s.LoggedIn() {
		c.SetAuth(s.Result())
	} else {
		c.SetAuth(&auth.Result{Method: auth.Cephx, Mode: auth.CRC, Session: s})
	}
	return a
}

// loginNone believes the name that the peer gives.
func (cfg *ServerConfig) loginNone(c *control.Conn, payload []byte) authReply {
	r := wire.NewReader(payload)
	r.U8()
	offered := false
	for _, m := range r.U32s() {
		offered = offered || auth.Method(m) == auth.None
	}
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
