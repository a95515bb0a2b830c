package dataplane

import (
	"encoding/binary"
	"errors"
	"time"
)

// Errors of connections that ended for want of life.
var (
	// ErrIdle: nothing was received or sent for the idle limit.
	ErrIdle = errors.New("dataplane: idle for too long")
	// ErrKeepaliveTimeout: the peer did not answer keepalives.
	ErrKeepaliveTimeout = errors.New("dataplane: keepalive not answered")
)

// Timestamp is the wall-clock time that keepalive frames carry (utime,
// msgr2.md 1.1).
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

func parseTimestamp(p []byte) (Timestamp, bool) {
	if len(p) < 8 {
		return Timestamp{}, false
	}
	return Timestamp{binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:])}, true
}

func seqPayload(seq uint64) (p [8]byte) {
	binary.LittleEndian.PutUint64(p[:], seq)
	return p
}

// wall is the time for a KEEPALIVE2 frame.
func (c *Core) wall() Timestamp {
	now := c.cfg.Wall()
	return Timestamp{uint32(now.Unix()), uint32(now.Nanosecond())}
}

// Keepalives are times of the data phase: on the peer's clock the first, on
// ours the others.
type Keepalives struct {
	Received Timestamp // of the peer's last KEEPALIVE2
	Sent     Timestamp // of our last KEEPALIVE2
	Acked    Timestamp // of our last one that the peer answered
}

// watch starts the timers of an open connection.
func (s *socket) watch(h *Handler) {
	o := &h.options
	every := o.IdleAfter
	if o.KeepaliveEvery > 0 && (every == 0 || o.KeepaliveEvery < every) {
		every = o.KeepaliveEvery
	}
	if every == 0 {
		return
	}
	s.touched, h.pinged, h.waiting = s.core.now, s.core.now, false
	s.arming(h, s.core.now+every)
}

// arming sets the timer for the first time.
func (s *socket) arming(h *Handler, at time.Duration) {
	s.idle.fire = func(_ *Core, now time.Duration) { s.check(h, now) }
	s.core.timers.arm(&s.idle, at)
}

// alive says that the connection is not to blame for its silence so far: we
// ourselves did not read it.
func (s *socket) alive() {
	s.touched = s.core.now
	if h := s.handler; h != nil {
		h.asked = s.core.now
	}
}

// check looks after a connection whose timer fired and arms it for the
// earliest moment at which something can be due again.
func (s *socket) check(h *Handler, now time.Duration) {
	o := &h.options
	if s.paused != nil {
		s.alive()
	}
	next := time.Duration(0)
	due := func(at time.Duration) {
		if next == 0 || at < next {
			next = at
		}
	}
	if o.IdleAfter > 0 {
		if now-s.touched >= o.IdleAfter {
			s.fault(ErrIdle)
			return
		}
		due(s.touched + o.IdleAfter)
	}
	if o.KeepaliveEvery > 0 {
		if o.KeepaliveTimeout > 0 && h.waiting && now-h.asked >= o.KeepaliveTimeout {
			s.fault(ErrKeepaliveTimeout)
			return
		}
		if now-h.pinged >= o.KeepaliveEvery {
			h.pinged, h.ping = now, true
			if !h.waiting {
				h.waiting, h.asked = true, now
			}
			s.core.markDirty(h)
		}
		due(h.pinged + o.KeepaliveEvery)
		if o.KeepaliveTimeout > 0 && h.waiting {
			due(h.asked + o.KeepaliveTimeout)
		}
	}
	s.core.timers.arm(&s.idle, max(next, now+time.Millisecond))
}
