package judge

import (
	"slices"

	"github.com/ringmsgr/ringmsgr/control/trace"
)

// sequence is what is known of the messages of one side.
type sequence struct {
	known bool   // last is
	last  uint64 // number of the last message
}

// maxBeats is how many keepalives are remembered.
const maxBeats = 64

// data looks at a frame of an open session. It says whether it is one.
func (c *conn) data(r *trace.Record) bool {
	s, peer := c.of(r.From), c.of(r.From.Other())
	switch f := r.Fields.(type) {
	case *trace.Message:
		c.message(r.From, s, f.Seq)
		if f.AckSeq > 0 {
			c.ack(r.From, peer, f.AckSeq)
		}
	case *trace.Ack:
		c.ack(r.From, peer, f.Seq)
	case *trace.Keepalive:
		if r.Tag == "KEEPALIVE2" {
			if len(s.beats) == maxBeats {
				s.beats = slices.Delete(s.beats, 0, 1)
			}
			s.beats = append(s.beats, r.Time)
			return true
		}
		// The latest may be the only one that is answered.
		if len(peer.beats) == 0 && !c.joined {
			c.wrong(r.From, "it answers a keepalive that was not sent")
		}
		peer.beats = nil
	default:
		return r.Tag == "KEEPALIVE" || r.Tag == "CLOSE"
	}
	return true
}

func (c *conn) message(from trace.Side, s *side, seq uint64) {
	switch q := &s.seq; {
	case q.known && seq <= q.last:
		c.wrong(from, "message %d comes again, or out of order, behind %d", seq, q.last)
		return
	case q.known && seq > q.last+1:
		c.wrong(from, "messages %d to %d are missing", q.last+1, seq-1)
	}
	s.seq = sequence{true, seq}
}

// ack: a side has everything up to seq that the peer has sent.
func (c *conn) ack(from trace.Side, peer *side, seq uint64) {
	if q := peer.seq; q.known && seq > q.last {
		c.wrong(from, "it acknowledges message %d, and the last that was sent is %d", seq, q.last)
	}
}

// expect says which number the next message of a side has.
func (s *side) expect(next uint64) { s.seq = sequence{true, next - 1} }
