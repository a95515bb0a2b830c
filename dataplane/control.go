package dataplane

import (
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Frames without a message cost their core as much as small messages, and no budget counts
// them: keepalives, acks that free nothing, aborted frames. A peer may send a second's worth
// of them at once (OpenOptions.ControlRate). Above that the connection is not read for a
// while, again and again, until a message comes. Honest peers send one in some seconds.
// Duplicates of messages do not count: a session that resumes may bring many in a row, and the
// frames after them must not wait.
//
// A connection whose peer has ended its stream is read to its end without a pause: the
// stream has no more than the socket's receive buffer holds, and a pause would keep
// the connection of a peer that has left.

// controlPause is the time for which a connection with too many frames without use is not read.
const controlPause = time.Second / 8

// useless counts a frame without use.
func (h *Handler) useless(c *loop.Core) {
	rate := h.pace.controlRate
	if rate <= 0 || h.sock == nil || h.sock.HungUp() {
		return
	}
	now := c.Now()
	h.controlUntil = max(h.controlUntil, now) + time.Second/time.Duration(rate)
	if h.controlUntil-now <= time.Second {
		return
	}
	h.stats.controlPauses++
	h.local.counts.ControlPauses++
	h.sock.Rest()
	c.Arm(&h.progress, now+controlPause)
}

// rested goes on with a socket after a pause. It returns false if there was none.
func (h *Handler) rested(s *loop.Socket) bool {
	if !s.Resting() {
		return false
	}
	s.EndRest()
	return true
}
