package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/trace"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// maxConns bounds the number of connections at a time.
const maxConns = 64 << 10

// Judge follows connections by the records of package trace, from a trace or from [Read]: it
// reports the state of each connection, and the rules that its peers break. It finds refusals,
// sequence numbers that are missing or come twice, acks of messages that were not sent, frames
// out of place, and ends before a session is open. After a gap it reports no error that the gap
// may explain.
type Judge struct {
	conns map[uint64]*conn
	gaps  int            // that any connection may have
	notes []trace.Record // of the record that is being looked at
	now   time.Time
}

// NewJudge makes a Judge without connections.
func NewJudge() *Judge { return &Judge{conns: make(map[uint64]*conn)} }

// conn is one connection.
type conn struct {
	j      *Judge
	socket uint64
	gaps   int  // of the judge, as far as this connection has heard of them
	joined bool // it had begun before, or a gap hides how it came to where it is
	opened bool // messages may be sent
	state  string
	sides  [2]side
	method string // of authentication
}

// side is the state of one end.
type side struct {
	rank   int    // its step in the handshake
	tag    string // its last frame there
	entity string // type, then with its number
	addrs  string
	rev1   bool
	seq    sequence
	beats  []time.Time // keepalives that the other side has not answered
}

// Look takes the next record, not one of a judge, and returns the conclusions: records with the
// events State and Wrong, valid until the next call.
func (j *Judge) Look(r *trace.Record) []trace.Record {
	j.notes, j.now = j.notes[:0], r.Time
	c := j.conns[r.Socket]
	if r.Event == trace.Open || c == nil {
		if r.Event == trace.Lost && r.Socket == 0 {
			j.gaps++
			return nil
		}
		if len(j.conns) >= maxConns {
			clear(j.conns)
		}
		c = &conn{j: j, socket: r.Socket, gaps: j.gaps, state: "banners"}
		c.joined = r.Event != trace.Open || r.Error != ""
		j.conns[r.Socket] = c
	}
	if c.gaps != j.gaps {
		c.gaps = j.gaps
		c.lost(trace.Connector)
		c.lost(trace.Acceptor)
	}
	switch r.Event {
	case trace.Banner, trace.Frame:
		c.frame(r)
	case trace.Lost, trace.Bad:
		c.lost(r.From)
	case trace.End:
		c.end(r)
		delete(j.conns, r.Socket)
	}
	return j.notes
}

func (c *conn) note(e trace.Event, from trace.Side, format string, args ...any) {
	c.j.notes = append(c.j.notes, trace.Record{Time: c.j.now, Socket: c.socket, Event: e, From: from, Text: fmt.Sprintf(format, args...)})
}

func (c *conn) wrong(from trace.Side, format string, args ...any) {
	c.note(trace.Wrong, from, format, args...)
}

func (c *conn) enter(state, format string, args ...any) {
	c.state = state
	c.note(trace.State, "", format, args...)
}

func (c *conn) of(s trace.Side) *side {
	if s == trace.Acceptor {
		return &c.sides[1]
	}
	return &c.sides[0]
}

func (c *conn) frame(r *trace.Record) {
	if r.From != trace.Connector && r.From != trace.Acceptor {
		return
	}
	if r.Error != "" {
		c.wrong(r.From, "%s is malformed: %s", r.Tag, r.Error)
		return
	}
	if r.Aborted {
		c.wrong(r.From, "%s was given up by its sender, and counts as not sent", r.Tag)
		return
	}
	if r.Protocol == trace.Msgr1 {
		c.frame1(r)
	} else {
		c.frame2(r)
	}
}

// lost handles a gap in the records of a side.
func (c *conn) lost(from trace.Side) {
	c.joined = true
	c.of(from).seq = sequence{}
	c.of(from.Other()).beats = nil // it may have the answer
}

func (c *conn) end(r *trace.Record) {
	if !c.opened && !c.joined {
		c.wrong("", "it ended before a session was open, in state %s: %s", c.state, cmp.Or(r.Error, "closed"))
		return
	}
	for _, from := range []trace.Side{trace.Connector, trace.Acceptor} {
		s := c.of(from)
		if len(s.beats) > 0 && r.Time.Sub(s.beats[0]) >= time.Second {
			const text = "it did not answer %d keepalives, the first %.1f s before the end"
			c.wrong(from.Other(), text, len(s.beats), r.Time.Sub(s.beats[0]).Seconds())
		}
	}
}

// open notes that messages may be sent.
func (c *conn) open(format string, args ...any) {
	c.opened = true
	c.enter("open", format, args...)
}

// sequence are the numbers of the messages of one side.
type sequence struct {
	known bool   // last is
	last  uint64 // number of the last message
}

// maxBeats bounds the keepalives that are remembered.
const maxBeats = 64

// data looks at a frame of an open session.
func (c *conn) data(r *trace.Record) {
	s, peer := c.of(r.From), c.of(r.From.Other())
	f := r.Fields
	if f == nil {
		return
	}
	switch r.Tag {
	case "MESSAGE", "MSG":
		c.message(r.From, s, f.Seq)
		if f.AckSeq > 0 {
			c.ack(r.From, peer, f.AckSeq)
		}
	case "ACK":
		c.ack(r.From, peer, f.Seq)
	case "KEEPALIVE2":
		if len(s.beats) == maxBeats {
			s.beats = slices.Delete(s.beats, 0, 1)
		}
		s.beats = append(s.beats, r.Time)
	case "KEEPALIVE2_ACK":
		// The latest may be the only one that is answered.
		if len(peer.beats) == 0 && !c.joined {
			c.wrong(r.From, "it answers a keepalive that was not sent")
		}
		peer.beats = nil
	}
}

func (c *conn) message(from trace.Side, s *side, seq uint64) {
	switch q := &s.seq; {
	case q.known && seq <= q.last:
		c.wrong(from, "message %d comes again, or out of order, after %d", seq, q.last)
		return
	case q.known && seq > q.last+1:
		c.wrong(from, "messages %d to %d are missing", q.last+1, seq-1)
	}
	s.seq = sequence{true, seq}
}

// ack checks that the peer has sent the message that a side acknowledges.
func (c *conn) ack(from trace.Side, peer *side, seq uint64) {
	if q := peer.seq; q.known && seq > q.last {
		c.wrong(from, "it acknowledges message %d, and the last that was sent is %d", seq, q.last)
	}
}

// expect says which number the next message of a side has.
func (s *side) expect(next uint64) { s.seq = sequence{true, next - 1} }

// The steps of a handshake, in their order.
const (
	stepBanner = iota + 1
	stepHello
	stepAuth
	stepSign
	stepCompress
	stepSession
	stepData
)

// legal are tags of a step, and the side that may send them; "" is both.
type legal struct {
	step int
	from trace.Side
	tags string
}

var order = []legal{
	{stepHello, "", "HELLO"},
	{stepAuth, trace.Connector, "AUTH_REQUEST AUTH_REQUEST_MORE"},
	{stepAuth, trace.Acceptor, "AUTH_BAD_METHOD AUTH_REPLY_MORE AUTH_DONE"},
	{stepSign, "", "AUTH_SIGNATURE"},
	{stepCompress, trace.Connector, "COMPRESSION_REQUEST"},
	{stepCompress, trace.Acceptor, "COMPRESSION_DONE"},
	{stepSession, trace.Connector, "CLIENT_IDENT SESSION_RECONNECT"},
	{stepSession, trace.Acceptor, "SERVER_IDENT IDENT_MISSING_FEATURES SESSION_RESET SESSION_RETRY SESSION_RETRY_GLOBAL " +
		"SESSION_RECONNECT_OK WAIT"},
	{stepData, "", "MESSAGE ACK KEEPALIVE2 KEEPALIVE2_ACK"},
}

// once are the tags that a side sends at most once.
var once = []string{
	"HELLO", "AUTH_DONE", "AUTH_SIGNATURE", "COMPRESSION_REQUEST", "COMPRESSION_DONE", "SERVER_IDENT", "SESSION_RECONNECT_OK",
}

// frame2 looks at a banner or a frame of msgr2.
func (c *conn) frame2(r *trace.Record) {
	s := c.of(r.From)
	if r.Event == trace.Banner {
		c.banner(r, s)
		return
	}
	at := slices.IndexFunc(order, func(l legal) bool { return slices.Contains(strings.Fields(l.tags), r.Tag) })
	if at < 0 {
		c.wrong(r.From, "the protocol has no %s", r.Tag)
		return
	}
	l := order[at]
	switch {
	case l.from != "" && l.from != r.From:
		c.wrong(r.From, "%s is a frame of the %s", r.Tag, l.from)
		return
	case l.step == stepData && !c.opened && !c.joined:
		c.wrong(r.From, "%s before a session is open", r.Tag)
	case l.step < s.rank, l.step == s.rank && s.tag == r.Tag && slices.Contains(once, r.Tag):
		c.wrong(r.From, "%s after %s", r.Tag, s.tag)
	case l.step > max(s.rank, stepBanner)+1 && !c.joined && (s.rank != stepSign || l.step != stepSession): // not all sides compress
		c.wrong(r.From, "%s after %s, with steps of the handshake left out", r.Tag, cmp.Or(s.tag, "the banner"))
	}
	s.rank, s.tag = max(s.rank, l.step), r.Tag
	if l.step == stepData {
		c.opened = c.opened || c.joined
		c.data(r)
		return
	}
	c.handshake(r, s)
}

func (c *conn) banner(r *trace.Record, s *side) {
	f := r.Fields
	if f == nil {
		return
	}
	s.rank, s.rev1 = stepBanner, f.Supported&wire.Features(wire.BannerRevision1) != 0
	peer := c.of(r.From.Other())
	if missing := uint64(f.Required) &^ (wire.BannerRevision1 | wire.BannerCompression); missing != 0 {
		c.wrong(r.From, "it requires unknown features: 0x%x", missing)
	}
	if peer.rank == stepBanner {
		name := "msgr2.0"
		if s.rev1 && peer.rev1 {
			name = "msgr2.1"
		}
		c.enter("hello", "%s", name)
	}
}

// handshake draws conclusions from a frame of the handshake.
func (c *conn) handshake(r *trace.Record, s *side) {
	f, peer := r.Fields, c.of(r.From.Other())
	if f == nil && r.Tag != "WAIT" {
		return // of a later version
	}
	switch r.Tag {
	case "HELLO":
		s.entity = f.EntityType
		c.state = "authentication"
	case "AUTH_REQUEST":
		c.method = f.Method
	case "AUTH_BAD_METHOD":
		c.wrong(r.From, "it refuses method %s: %s; it allows %s in mode %s", f.Method, errno(f.Result), orNothing(f.Methods), orNothing(f.Modes))
	case "AUTH_DONE":
		c.enter("signatures", "authenticated by %s, mode %s, global id %d", orUnknown(c.method), f.Mode, f.GlobalID)
	case "AUTH_SIGNATURE":
		c.state = "session"
		if c.method == "cephx" && !f.Signed {
			c.wrong(r.From, "its signature is zero, and the method has keys")
		}
	case "COMPRESSION_DONE":
		if f.Compress {
			c.enter("session", "compressed by %s", f.Method)
		}
	case "CLIENT_IDENT":
		s.name(f.GID)
		s.addrs, peer.addrs = f.Addrs.String(), f.Target.String()
	case "SERVER_IDENT":
		c.serverIdent(f, s, peer)
	case "IDENT_MISSING_FEATURES":
		c.wrong(r.From, "it requires features that the connector lacks: %v", f.Features)
	case "SESSION_RECONNECT":
		s.addrs = f.Addrs.String()
		peer.expect(f.MsgSeq + 1)
		c.state = fmt.Sprintf("reconnect %d", f.ConnectSeq)
	case "SESSION_RECONNECT_OK":
		peer.expect(f.MsgSeq + 1)
		c.open("open: the session of %s is resumed, %s", peer.addrs, c.state)
	case "SESSION_RETRY":
		c.enter(c.state, "the acceptor counts %d connections of this session: the connector tries again", f.ConnectSeq)
	case "SESSION_RETRY_GLOBAL":
		c.enter(c.state, "the acceptor has seen attempt %d: the connector tries again", f.GlobalSeq)
	case "SESSION_RESET":
		what := "messages without an ack are sent again"
		if f.Full {
			what = "queued messages are lost"
		}
		c.wrong(r.From, "it does not know the session of %s: %s", peer.addrs, what)
	case "WAIT":
		c.enter("wait", "both sides dial: the acceptor's own attempt goes on")
	}
}

// serverIdent opens a new session.
func (c *conn) serverIdent(f *trace.Fields, s, peer *side) {
	s.name(f.GID)
	meant := s.addrs
	s.addrs = f.Addrs.String()
	if meant != "" && !slices.ContainsFunc(f.Addrs, func(a wire.Addr) bool { return a.String() == meant }) {
		c.wrong(trace.Acceptor, "it is %s, and the connector has dialled %s: it will hang up", s.addrs, meant)
	}
	if !c.joined {
		s.expect(1)
		peer.expect(1)
	}
	c.open("open: %s session of %s at %s with %s at %s", kind[f.Lossy], peer.entity, peer.addrs, s.entity, s.addrs)
}

// kind names a session that is lossy, or is not.
var kind = map[bool]string{true: "lossy", false: "lossless"}

// name adds the number of an entity to its type.
func (s *side) name(gid int64) {
	typ, _, _ := strings.Cut(orUnknown(s.entity), ".")
	if gid < 0 {
		s.entity = typ + ".?"
		return
	}
	s.entity = fmt.Sprintf("%s.%d", typ, gid)
}

func orUnknown(s string) string { return cmp.Or(s, "unknown") }

func orNothing(words []string) string { return cmp.Or(strings.Join(words, ", "), "nothing") }

func errno(n int32) string {
	if n >= 0 || n < -4095 {
		return fmt.Sprintf("result %d", n)
	}
	return syscall.Errno(-n).Error()
}

// frame1 looks at a part of msgr1.
func (c *conn) frame1(r *trace.Record) {
	f, s, peer := cmp.Or(r.Fields, &trace.Fields{}), c.of(r.From), c.of(r.From.Other())
	switch answer, ok := strings.CutPrefix(r.Tag, "reply "); {
	case ok:
		c.reply(r, answer, f, peer, s)
	case r.Tag == "addresses":
		s.addrs = f.Own.String()
		if peer.addrs != "" {
			c.enter("connect", "msgr1")
		}
	case r.Tag == "connect":
		s.entity = f.HostType
		c.method, c.state = f.Method, "connect"
	case r.Tag == "seq":
		peer.expect(f.Received + 1)
	default:
		if !c.opened && !c.joined {
			c.wrong(r.From, "%s before a session is open", r.Tag)
		}
		c.opened = c.opened || c.joined
		c.data(r)
		s.entity = cmp.Or(f.Source, s.entity)
	}
}

// reply looks at the acceptor's answer to connect.
func (c *conn) reply(r *trace.Record, answer string, f *trace.Fields, peer, s *side) {
	switch answer {
	case "READY", "SEQ":
		how := "without authorizer"
		if c.method != "" {
			how = "authorizer of " + c.method
		}
		c.open("open: %s session of %s at %s with %s, connection %d, %s",
			kind[f.Lossy], orUnknown(peer.entity), peer.addrs, s.addrs, f.ConnectSeq, how)
	case "WAIT":
		c.enter("wait", "both sides dial: the acceptor's own attempt goes on")
	case "RETRY_SESSION":
		c.enter(c.state, "the acceptor counts %d connections of this session: the connector tries again", f.ConnectSeq)
	case "RETRY_GLOBAL":
		c.enter(c.state, "the acceptor has seen attempt %d, or replaces the session: the connector tries again", f.GlobalSeq)
	case "CHALLENGE_AUTHORIZER":
		c.enter(c.state, "the acceptor wants proof of the authorizer")
	case "BADPROTOVER":
		c.wrong(r.From, "the versions of the protocol differ: the acceptor has %d", f.Protocol)
	case "BADAUTHORIZER":
		c.wrong(r.From, "the acceptor does not accept the authorizer, or misses one")
	case "FEATURES":
		c.wrong(r.From, "the connector lacks features that the acceptor requires")
	case "RESETSESSION":
		c.wrong(r.From, "the acceptor does not know the session: queued messages are lost")
	}
}
