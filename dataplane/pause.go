package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

// Pause stops reading, on this socket and those that follow, until Resume: its peer
// fills its own queue then, and is not taken for dead. Acks are not read either. What
// a full receive budget had stopped before it may bring one message more. Of Pause and
// Resume the last call holds, however the handler moves meanwhile. Any goroutine.
func (h *Handler) Pause() {
	h.wantPause.Store(true)
	h.Do(func(*Core) {
		if h.wantPause.Load() {
			h.paused = true
			h.holdPaused(h.sock)
		}
	})
}

// holdPaused stops a socket, if the handler is paused.
func (h *Handler) holdPaused(s *loop.Socket) {
	if h.paused && s != nil {
		s.Hold()
	}
}
