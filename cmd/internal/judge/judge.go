// Package judge follows connections by the records of package trace, from a trace or from
// [trace.Streams]: it reports the state of each connection, and the rules that its peers break.
//
//   - judge.go has the [Judge], the life of a connection, and messages, acks and keepalives,
//     which both protocols share.
//   - handshake.go has the order of their handshakes.
//
// It finds refusals, sequence numbers that are missing or come twice, acks of messages that
// were not sent, frames out of place, and ends before a session is open. After a gap it reports
// no error that the gap may explain.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/control/trace"
)

// maxConns bounds the number of connections at a time.
const maxConns = 64 << 10

// Judge follows the connections of one trace or recording.
type Judge struct {
	conns map[uint64]*conn
	notes []trace.Record // of the record that is being looked at
	now   time.Time
}

// New makes a Judge without connections.
func New() *Judge { return &Judge{conns: make(map[uint64]*conn)} }

// conn is one connection.
type conn struct {
	j      *Judge
	socket uint64
	msgr1  bool
	joined bool // it had begun before, or a gap hides how it came to where it is
	opened bool // messages may be sent
	state  string
	sides  [2]side
	method string // of authentication
	mode   string
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

// Look takes the next record, and returns the conclusions: records with the events State and
// Wrong, valid until the next call.
func (j *Judge) Look(r *trace.Record) []trace.Record {
	j.notes, j.now = j.notes[:0], r.Time
	if r.Event == trace.State || r.Event == trace.Wrong {
		return nil // of a judge before us
	}
	c := j.conns[r.Socket]
	if r.Event == trace.Open || c == nil {
		if r.Event == trace.Lost && r.Socket == 0 {
			j.lostAll()
			return nil
		}
		if len(j.conns) >= maxConns {
			clear(j.conns)
		}
		c = &conn{j: j, socket: r.Socket, state: "banners", msgr1: r.Protocol == trace.Msgr1}
		c.joined = r.Event != trace.Open || r.Error != ""
		j.conns[r.Socket] = c
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

// lostAll handles a gap that any connection may have.
func (j *Judge) lostAll() {
	for _, c := range j.conns {
		c.lost(trace.Connector)
		c.lost(trace.Acceptor)
	}
}

func (c *conn) note(e trace.Event, from trace.Side, format string, args ...any) {
	c.j.notes = append(c.j.notes, trace.Record{Time: c.j.now, Socket: c.socket, Event: e, From: from, Text: fmt.Sprintf(format, args...)})
}

func (c *conn) wrong(from trace.Side, format string, args ...any) {
	c.note(trace.Wrong, from, format, args...)
}

// enter notes another state.
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
		c.msgr1 = true
		c.frame1(r)
		return
	}
	c.frame2(r)
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
			c.wrong(from.Other(),
				"it did not answer %d keepalives, the first %.1f s before the "+
					"end", len(s.beats), r.Time.Sub(s.beats[0]).Seconds())
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
