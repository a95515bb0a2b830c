package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

// Pause stops reading, on this socket and those that follow, until Resume: its peer
// fills its own queue then, and is not taken for dead. Acks are not read either. What
// a full receive budget had stopped before it may bring one message more. Of Pause and
// Resume the last call holds, however the handler moves meanwhile. Any goroutine.
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

// follow has the core that owns the handler by then do what was called last. One task is
// enough for all calls that come before it runs, so that none of them allocates.
func (h *Handler) follow() {
	if h.following.Swap(true) {
		return
	}
	if h.followTask == nil { // whoever sets following has it
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
	h.following.Store(false) // who calls from here on posts it again
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
