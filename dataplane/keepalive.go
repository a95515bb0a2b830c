package dataplane

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Errors of connections that ended because the peer was silent.
var (
	// errIdle: no byte came or went within the idle limit.
	errIdle = errors.New("dataplane: idle for too long")
	// errKeepaliveTimeout: the peer did not answer keepalives.
	errKeepaliveTimeout = errors.New("dataplane: keepalive not answered")
)

// Timestamp is the wall-clock time that keepalive frames carry (utime,
// utime.h).
type Timestamp struct {
	Sec, Nsec uint32
}

// Time converts t. The zero Timestamp is the zero Time.
func (t Timestamp) Time() time.Time {
	if t == (Timestamp{}) {
		return time.Time{}
	}
	return time.Unix(int64(t.Sec), int64(t.Nsec))
}

func (t Timestamp) payload() (p [8]byte) {
	binary.LittleEndian.PutUint32(p[:], t.Sec)
	binary.LittleEndian.PutUint32(p[4:], t.Nsec)
	return p
}

func timestampOf(p [8]byte) Timestamp {
	return Timestamp{binary.LittleEndian.Uint32(p[:]), binary.LittleEndian.Uint32(p[4:])}
}

func sequenceOf(p [8]byte) uint64 { return binary.LittleEndian.Uint64(p[:]) }

func seqPayload(seq uint64) (p [8]byte) {
	binary.LittleEndian.PutUint64(p[:], seq)
	return p
}

// wall is the time for a KEEPALIVE2 frame.
func wall(c *loop.Core) Timestamp {
	now := c.Config().Wall()
	return Timestamp{uint32(now.Unix()), uint32(now.Nanosecond())}
}

// Keepalives are times of the data phase: on the peer's clock the first, on
// ours the others.
type Keepalives struct {
	Received Timestamp // of the peer's last KEEPALIVE2
	Sent     Timestamp // of our last KEEPALIVE2
	Acked    Timestamp // of our last one that the peer answered
}

// stamps are the timestamps of the last KEEPALIVE2 frames on a socket that the peer has not
// answered, in the order of the wire. Only an answer to one of them shows that the peer lives:
// a made-up timestamp does not. Owner: the core.
type stamps []Timestamp

// keptStamps bounds their number. If the peer is further behind, the oldest stay, as their
// answers come next, and the latest, as a peer may answer only that one.
const keptStamps = 8

func (s *stamps) add(t Timestamp) {
	if list := *s; len(list) == keptStamps {
		list[keptStamps-1] = t
		return
	}
	*s = append(*s, t)
}

// answer says whether t is the stamp of a keepalive without an answer, and
// forgets it with all before it: their answers do not come any more, since
// frames stay in order.
func (s *stamps) answer(t Timestamp) bool {
	i := slices.Index(*s, t)
	*s = slices.Delete(*s, 0, i+1)
	return i >= 0
}

func (h *Handler) heardKeepaliveAck(c *loop.Core, t Timestamp) {
	if !h.unanswered.answer(t) {
		h.stats.unaskedAcks++
		h.useless(c)
		return
	}
	h.seen.Acked, h.waiting = t, false
	h.owner.KeepaliveAck(h, t)
}

// watch starts the timer of an open connection.
func (h *Handler) watch(c *loop.Core) {
	o := h.pace
	every := o.idleAfter
	if o.keepaliveEvery > 0 && (every == 0 || o.keepaliveEvery < every) {
		every = o.keepaliveEvery
	}
	if every == 0 {
		return
	}
	h.pinged, h.waiting = c.Now(), false
	c.Arm(&h.idle, c.Now()+every)
}

// notWritten is Handler.askedAt while the keepalive waits for the end of a write.
const notWritten = math.MaxUint64

// moves reports that the peer has taken bytes since the last look which are before the first
// keepalive without an answer, and not more slowly than the least rate. A message may take longer
// than the keepalive limit: on a lossless session the next socket would begin it anew, again and
// again.
func (h *Handler) moves(s *loop.Socket) bool {
	before, taken := s.Progress()
	size, took := s.Writing()
	return taken > before && before < h.askedAt && (h.pace.leastRate <= 0 || took <= h.pace.patience(size, false))
}

// check looks after a connection whose timer fired, and arms the timer for the next task.
func (h *Handler) check(c *loop.Core, now time.Duration) {
	s, o := h.sock, h.pace
	if s == nil {
		return
	}
	switch {
	case s.Stopped():
		h.asked = now // we ourselves do not read
	case h.framer.frame().target != nil:
		h.asked = max(h.asked, now-s.Quiet()) // its answer comes behind the message, whose rate is bounded
	}
	if h.waiting && h.moves(s) {
		h.asked = now // its answer comes behind the bytes that it still takes
	}
	next := time.Duration(0)
	due := func(at time.Duration) {
		if next == 0 || at < next {
			next = at
		}
	}
	if o.idleAfter > 0 {
		if h.writing() > 0 && now-s.Touched() >= o.idleAfter {
			s.Progress() // a part of a large write may have gone
		}
		if now-s.Touched() >= o.idleAfter {
			s.Fault(errIdle)
			return
		}
		due(s.Touched() + o.idleAfter)
	}
	if o.keepaliveEvery > 0 {
		if o.keepaliveTimeout > 0 && h.waiting && now-h.asked >= o.keepaliveTimeout {
			s.Fault(errKeepaliveTimeout)
			return
		}
		if now-h.pinged >= o.keepaliveEvery {
			h.pinged, h.ping = now, true
			if !h.waiting && h.framer.answers() {
				h.waiting, h.asked, h.askedAt = true, now, notWritten
				s.Progress()
			}
			s.Mark()
		}
		due(h.pinged + o.keepaliveEvery)
		if o.keepaliveTimeout > 0 && h.waiting {
			due(h.asked + o.keepaliveTimeout)
		}
	}
	c.Arm(&h.idle, max(next, now+time.Millisecond))
}
