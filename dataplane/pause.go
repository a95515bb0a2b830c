package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

// Pause stops reading, on this socket and later ones, until Resume: the peer then fills its own
// queue, and does not count as dead. Acks are not read either. A connection that a full
// receive budget had stopped before may bring one message more. The last call of Pause or
// Resume holds, even if the handler moves meanwhile. Any goroutine.
func (h *Handler) Pause() {
	h.wantPause.Store(true)
	h.follow()
}

// Resume lets a connection go on that a probe or Pause stopped. Any goroutine.
func (h *Handler) Resume() {
	h.wantPause.Store(false)
	h.wantResume.Store(true)
	h.follow()
}

// follow has the core that then owns the handler carry out the last call. One task is enough
// for all calls before it runs, so that no call allocates.
func (h *Handler) follow() {
	if h.following.Swap(true) {
		return
	}
	if h.followTask == nil { // the goroutine that has set following owns it
		h.followTask = &loop.Task{Run: h.followed}
	}
	h.core.Load().Post(h.followTask)
}

// followed is the task of follow.
func (h *Handler) followed(c *loop.Core) {
	if owner := h.core.Load(); owner != c || h.wantResume.Load() && h.state == stateOpen && h.sock == nil && !c.Gone() {
		owner.Post(h.followTask) // it has moved, or its socket is still to arrive
		return
	}
	h.following.Store(false) // later calls post it again
	resumed := h.wantResume.Swap(false)
	if h.paused = h.wantPause.Load(); c.Gone() {
		return
	}
	h.takeInbox()
	h.holdPaused(h.sock)
	if resumed {
		h.holdOut = false
		if s := h.sock; s != nil && !h.paused {
			h.asked = c.Now() // the peer was not silent: we did not read
			s.Release()
		}
	}
	h.wake()
}

// holdPaused stops a socket, if the handler is paused.
func (h *Handler) holdPaused(s *loop.Socket) {
	if h.paused && s != nil {
		s.Hold()
	}
}
