package loop

import "time"

// Pause stops reading until full, one of ts, has room for need units, or for more of an
// unfinished frame (begun). Then Feed is called again; it takes the units that it could
// not get before, or calls Pause again.
func (s *Socket) Pause(ts *Throttles, full *Throttle, need int64, begun bool) {
	s.core.assertOwner()
	s.paused = full
	s.stopReceiving()
	s.waiter.of, s.waiter.need, s.waiter.begun = ts, need, begun
	if !s.retrying {
		s.core.stats.Paused++
		s.pausedAt = s.core.now
	}
	ts.since.Store(int64(s.pausedAt))
	ts.paused.Store(&s.waiter)
	full.wait(&s.waiter, s.retrying)
}

// Passed says that the frame at which the socket stopped has got its units.
func (s *Socket) Passed() {
	s.core.assertOwner()
	s.retrying = false
}

// Stopped says that the socket does not read, because of a throttle, Hold, or Rest.
func (s *Socket) Stopped() bool {
	s.core.assertOwner()
	return s.paused != nil
}

// StoppedSince is the time at which the socket began to wait for a throttle, on the
// core's clock.
func (s *Socket) StoppedSince() time.Duration {
	s.core.assertOwner()
	return s.pausedAt
}

// Begin starts the time of Took for an unfinished frame. Time in which a throttle stops
// the socket does not count.
func (s *Socket) Begin() {
	s.core.assertOwner()
	s.began = s.core.now
}

// Took is the time since Begin.
func (s *Socket) Took() time.Duration {
	s.core.assertOwner()
	return s.core.now - s.began
}

// Hold stops reading until Release.
func (s *Socket) Hold() {
	s.core.assertOwner()
	if s.paused == nil || s.Resting() {
		s.paused = &s.core.held
		s.stopReceiving()
	}
}

// Rest stops reading until EndRest, or until Release if Hold comes meanwhile. It does
// nothing to a socket that is stopped already.
func (s *Socket) Rest() {
	s.core.assertOwner()
	if s.paused == nil {
		s.paused = &s.core.resting
		s.stopReceiving()
	}
}

// Resting says that the socket does not read because of Rest.
func (s *Socket) Resting() bool { return s.paused == &s.core.resting }

// EndRest ends a Rest, and does nothing without one. It may call Feed.
func (s *Socket) EndRest() {
	s.core.assertOwner()
	if !s.dead && s.Resting() {
		s.proceed()
	}
}

// Release ends a Hold, and does nothing without one. It may call Feed.
func (s *Socket) Release() {
	s.core.assertOwner()
	if s.dead || s.paused != &s.core.held {
		return
	}
	s.proceed()
}

// proceed reads again.
func (s *Socket) proceed() {
	s.paused = nil
	s.alive()
	s.feedBacklog()
	s.resumeReading()
}

// alive restarts the idle time: the peer was not silent, the socket did not read.
func (s *Socket) alive() { s.touched = s.core.now }

// Throttled says that a throttle has stopped the socket, rather than Hold or Rest.
func (s *Socket) Throttled() bool {
	s.core.assertOwner()
	return s.paused != nil && s.paused != &s.core.held && !s.Resting()
}

// unpause tries again, and then lets the next waiter try.
func (s *Socket) unpause(*Core) {
	s.waiter.posted.Store(false)
	if !s.Throttled() {
		return
	}
	t := s.paused
	if t.inLine(&s.waiter) && !s.shareFits() {
		return // units of its own share came back, but not enough
	}
	since := s.pausedAt
	s.leaveLine()
	if !s.dead {
		s.alive()
		s.retrying = true
		s.feedBacklog()
		s.retrying = false
		s.resumeReading()
	}
	if s.paused == nil {
		s.began += s.core.now - since
	} else if s.paused == t {
		s.pausedAt = since
		s.waiter.of.since.Store(int64(since))
	}
	t.notify()
	if s.detach != nil && s.ops == 0 {
		s.atRest()
	}
}

// shareFits says that the connection's own share has room for the units that the socket
// needs.
func (s *Socket) shareFits() bool {
	t := s.waiter.of
	if s.paused != t.Shared {
		return false
	}
	if s.waiter.begun {
		return t.shareHas(1)
	}
	return t.shareHas(s.waiter.need)
}

// leaveLine ends the wait for the receive budget. The caller then calls notify for the
// next waiter.
func (s *Socket) leaveLine() {
	s.paused.leave(&s.waiter)
	s.paused = nil
	s.waiter.of.paused.Store(nil)
}

// place is the socket's place in line; nil has none.
func (s *Socket) place() *waiter {
	if s == nil {
		return nil
	}
	return &s.waiter
}
