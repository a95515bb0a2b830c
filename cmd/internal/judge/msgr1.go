package judge

import (
	"strings"

	"github.com/ringmsgr/ringmsgr/control/trace"
)

// frame1 looks at what msgr1 has in place of frames.
func (c *conn) frame1(r *trace.Record) {
	s, peer := c.of(r.From), c.of(r.From.Other())
	switch f := r.Fields.(type) {
	case *trace.Addresses:
		s.addrs = f.Own.String()
		if peer.addrs != "" {
			c.enter("connect", "msgr1")
		}
	case *trace.Connect:
		s.entity = f.HostType
		c.method, c.state = f.Method, "connect"
	case *trace.Reply:
		c.reply(r, f, s, peer)
	case *trace.Seqs:
		peer.expect(f.Received + 1)
	default:
		if !c.opened && !c.joined {
			c.wrong(r.From, "%s before a session is open", r.Tag)
		}
		c.opened = c.opened || c.joined
		c.data(r)
		if m, ok := r.Fields.(*trace.Message); ok && m.Source != "" {
			s.entity = m.Source
		}
	}
}

// refusals1 are the replies that end an attempt.
var refusals1 = map[string]string{
	"BADPROTOVER":   "the versions of the protocol differ: the acceptor has %d",
	"BADAUTHORIZER": "the acceptor does not accept the authorizer, or misses one",
	"FEATURES":      "the connector lacks features that the acceptor requires",
	"RESETSESSION":  "the acceptor does not know the session: what was queued is lost",
}

func (c *conn) reply(r *trace.Record, f *trace.Reply, s, peer *side) {
	switch name := strings.TrimPrefix(r.Tag, trace.TagReply); name {
	case "READY", "SEQ":
		kind := "lossless"
		if f.Lossy {
			kind = "lossy"
		}
		how := "without authorizer"
		if c.method != "" {
			how = "authorizer of " + c.method
		}
		c.open("open: %s session of %s at %s with %s, connection %d, %s", kind, orUnknown(peer.entity), peer.addrs, s.addrs, f.ConnectSeq, how)
	case "WAIT":
		c.enter("wait", "both sides dial: the acceptor's own attempt goes on")
	case "RETRY_SESSION":
		c.enter(c.state, "the acceptor counts %d connections of this session: the connector tries again", f.ConnectSeq)
	case "RETRY_GLOBAL":
		c.enter(c.state, "the acceptor has seen attempt %d, or replaces the session: the connector tries again", f.GlobalSeq)
	case "CHALLENGE_AUTHORIZER":
		c.enter(c.state, "the acceptor wants proof of the authorizer")
	case "BADPROTOVER":
		c.wrong(r.From, refusals1[name], f.Protocol)
	default:
		if text, ok := refusals1[name]; ok {
			c.wrong(r.From, "%s", text)
		}
	}
}
