package dataplane

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// The peer of a connection frees its part of the receive budget: an unfinished message by its
// remaining bytes, a stopped stream by the acks in it. These are the bounds for peers that do
// not.

// Faults of connections that held memory for which others wait.
var (
	// errTooSlow: an unfinished message came more slowly than the least rate, or the peer took
	// messages more slowly while others waited for their memory.
	errTooSlow = errors.New("dataplane: the peer is too slow")
	// errGivenUp: a full receive budget stopped the socket of a lossless session while
	// messages of ours waited for acks that the stream may hold. The reconnect brings the
	// number of the last message that the peer has.
	errGivenUp = errors.New("dataplane: socket given up, as acks may wait behind a full receive budget")
)

const (
	// progressEvery is the interval at which a connection is checked that is stopped, or has an
	// unfinished frame.
	progressEvery = time.Second
	// pressure multiplies the least rate while others wait for the memory of an
	// unfinished message.
	pressure = 16
	// giveUpAfter is the time after which a stopped connection gives its socket up, giveUpSoon
	// the same if a caller waits for room in its sending queue. Both double with each time, up
	// to giveUpMost, until an ack comes: another reconnect would not free more.
	giveUpAfter = 3 * time.Second
	giveUpSoon  = 100 * time.Millisecond
	giveUpMost  = 5 * time.Minute
	// hungUpFor is the time for which a stopped connection is kept after its peer has ended
	// its stream, for the bytes that the stream may still hold.
	hungUpFor = 30 * time.Second
)

// watchProgress has the socket looked at soon, and again while there is a reason.
func (h *Handler) watchProgress(s *loop.Socket) {
	if !h.progress.Armed() {
		c := s.Core()
		c.Arm(&h.progress, c.Now()+h.nextLook(s))
	}
}

// nextLook is when the socket is to be looked at again.
func (h *Handler) nextLook(s *loop.Socket) time.Duration {
	if s.Throttled() && h.awaited() {
		return giveUpSoon
	}
	return progressEvery
}

// awaited reports whether a caller waits for room that acks would bring.
func (h *Handler) awaited() bool { return !h.lossy && h.sent.n > 0 && h.held.waiting.Load() }

// checkProgress runs in intervals while the socket is stopped or has an
// unfinished frame.
func (h *Handler) checkProgress(c *loop.Core, now time.Duration) {
	s := h.sock
	if s == nil || h.rested(s) {
		return
	}
	var err error
	switch {
	case s.Throttled():
		err = h.checkStopped(s, now)
	case h.framer.frame().target != nil: // a part of a frame is there
		err = h.checkRate(s)
	default:
		return
	}
	if err != nil {
		s.Fault(err)
		return
	}
	c.Arm(&h.progress, now+h.nextLook(s))
}

// checkStopped gives the socket up if it may wait for acks of its own messages, or if its peer
// is gone.
func (h *Handler) checkStopped(s *loop.Socket, now time.Duration) error {
	stopped := now - s.StoppedSince()
	h.tellStopped(s.Core(), stopped, now)
	if s.HungUp() && stopped >= hungUpFor {
		return loop.ErrPeerClosed
	}
	if h.lossy || h.sent.n == 0 {
		return nil
	}
	patience := giveUpAfter
	if h.awaited() {
		patience = giveUpSoon
	}
	if stopped < min(patience<<h.givenUp, giveUpMost) {
		return nil
	}
	h.givenUp = min(h.givenUp+1, 16)
	h.local.counts.GivenUp++
	return fmt.Errorf("%w: %d messages are not acknowledged, stopped for %v", errGivenUp, h.sent.n, stopped)
}

// The log has one line when a connection was stopped for tellStoppedAfter, and on each core
// at most one in tellStoppedEvery: one program that forgets to release stops them all.
const (
	tellStoppedAfter = 5 * time.Second
	tellStoppedEvery = time.Minute
)

// tellStopped logs a connection that does not read because received messages are not released:
// its state does not show it, as the connection stays ready. A build with the tag "invariants"
// adds the stacks that have retained the messages of the core.
func (h *Handler) tellStopped(c *loop.Core, stopped, now time.Duration) {
	l := h.local
	if stopped < tellStoppedAfter || l.toldStopped > 0 && now-l.toldStopped < tellStoppedEvery {
		return
	}
	l.toldStopped = now
	log := c.Config().Logger
	if invariants.Holding {
		log = log.With("held", l.holders.Report())
	}
	log.Warn("connection throttled: received messages are not released",
		"for", stopped.Round(time.Second), "bytes", h.throttles.Held(), "core", c.ID())
}

// checkRate ends a connection whose unfinished frame comes too slowly. A socket with unread
// bytes is not to blame: we did not read them.
func (h *Handler) checkRate(s *loop.Socket) error {
	r, o := h.framer.frame(), h.pace
	if o.leastRate <= 0 || s.Behind() {
		return nil
	}
	took := s.Took()
	if took <= o.patience(r.fill, r.charge.Contended()) {
		return nil
	}
	h.local.counts.TooSlow++
	return fmt.Errorf("%w: %d of %d bytes of a %v frame came in %v", errTooSlow, r.fill, r.size, h.framer.underWay(), took)
}

// writing is the number of bytes of the write in flight; 0: there is none.
func (h *Handler) writing() (size int) {
	if h.sock != nil {
		size, _ = h.sock.Writing()
	}
	return size
}

// checkWrite ends a lossy connection that holds memory for which others wait, if its peer takes
// its messages too slowly. The bounds are those of an unfinished message for which others wait.
func (h *Handler) checkWrite() {
	if h.sock == nil || !h.lossy || h.pace.leastRate <= 0 {
		return
	}
	size, took := h.sock.Writing()
	if size == 0 || took <= h.pace.patience(size, true) {
		return
	}
	h.local.counts.TooSlow++
	h.sock.Fault(fmt.Errorf("%w: it has not taken %d bytes in %v, while others wait for the memory of its replies, %d bytes",
		errTooSlow, size, took, int64(size)+h.queue.bytes))
}

// patience is the time that n bytes may take, on their way in or out; contended: others wait
// for their memory.
func (p *pace) patience(n int, contended bool) time.Duration {
	rate, grace := p.leastRate, p.messageGrace
	if contended {
		rate, grace = pressure*rate, grace/10
	}
	return grace + time.Duration(float64(n)/float64(rate)*float64(time.Second))
}

// Frames without a message cost their core as much as small messages, and no budget counts
// them: keepalives, acks that free nothing, aborted frames. A peer may send a second's worth
// of them at once (DefaultControlRate), and a message allows as many again. Above that the
// connection is not read for a while, again and again, until a message comes. Honest peers send
// one in some seconds.
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
	if h.sock == nil || h.sock.HungUp() {
		return
	}
	now := c.Now()
	h.controlUntil = max(h.controlUntil, now) + time.Second/time.Duration(h.pace.controlRate)
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
