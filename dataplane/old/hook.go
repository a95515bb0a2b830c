package dataplane

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// FrameHook is the break point of the data phase, for tests. It is asked once
// for every frame: before it is written, and when the head of a received one
// is there. It runs on the core and must not block. nil lets the frame pass,
// ErrHold and ErrStall stop the connection until Handler.Resume, ErrHalfClose
// ends one direction, any other error is a fault at that place, with ErrReset
// an abrupt one.
type FrameHook interface {
	Frame(tag frame.Tag, write bool) error
}

// Answers of a FrameHook.
var (
	// ErrHold stops that direction before the frame, which goes on with Resume.
	ErrHold = errors.New("dataplane: held at a break point")
	// ErrStall lets the frame pass and stops both directions behind it.
	ErrStall = errors.New("dataplane: stalled at a break point")
	// ErrReset is a fault at that place, which the peer sees as a TCP reset.
	ErrReset = errors.New("dataplane: reset at a break point")
	// ErrHalfClose ends our direction of the TCP connection before the frame
	// and goes on: what is written from there on fails, what the peer still
	// sends is read.
	ErrHalfClose = errors.New("dataplane: half-closed at a break point")
)

// shownFrame names a frame that waits to be written: the next one of its tag, or
// one message.
type shownFrame struct {
	tag frame.Tag
	m   *Message
}

// mayWrite asks the hook for a frame that is about to be written, unless it was
// asked for that one before. pass is false if the write ends before it.
func (b *sweep) mayWrite(tag frame.Tag, m *Message) (pass bool, err error) {
	h := b.h
	if h.options.Hook == nil {
		return true, nil
	}
	if _, done := h.shown[shownFrame{tag, m}]; done {
		delete(h.shown, shownFrame{tag, m})
		return true, nil
	}
	switch err := h.options.Hook.Frame(tag, true); err {
	case nil:
		return true, nil
	case ErrHold:
		h.holdOut = true
		h.showed(tag, m)
		return false, nil
	case ErrStall:
		h.holdOut = true
		b.s.hold()
		return true, nil
	case ErrHalfClose:
		b.s.endWriting()
		return true, nil
	default:
		return false, err
	}
}

// showed remembers that the hook was asked for a frame that is not written
// yet. Before it comes up again, others may overtake it: a keepalive, or a more
// urgent message.
func (h *Handler) showed(tag frame.Tag, m *Message) {
	if h.options.Hook == nil {
		return
	}
	if h.shown == nil {
		h.shown = make(map[shownFrame]struct{})
	}
	h.shown[shownFrame{tag, m}] = struct{}{}
}

// mayRead asks the hook for a frame whose head is there.
func (r *frameReader) mayRead(s *socket) bool {
	if s.handler.options.Hook == nil || r.passed {
		return true
	}
	r.passed = true
	switch err := s.handler.options.Hook.Frame(r.hd.Tag, false); err {
	case nil:
		return true
	case ErrHold:
		s.hold()
		return false
	case ErrStall:
		r.stall = true
		return true
	case ErrHalfClose:
		s.endWriting()
		return true
	default:
		s.fault(err)
		return false
	}
}

// hold stops reading until Resume.
func (s *socket) hold() {
	if s.paused == nil {
		s.paused = &s.core.held
	}
}

// endWriting ends our direction of the stream.
func (s *socket) endWriting() {
	if s.sock.Valid() {
		_ = unix.Shutdown(s.sock.FD(), unix.SHUT_WR) // fails only if it has ended already
	}
}

// resetOnClose has the close that follows send a reset.
func (s *socket) resetOnClose() {
	if s.sock.Valid() {
		_ = unix.SetsockoptLinger(s.sock.FD(), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // without it the close is an orderly one
	}
}

// Resume lets a connection go on that a FrameHook stopped. Any goroutine.
func (h *Handler) Resume() {
	owner := h.core.Load()
	if err := owner.Do(func(c *Core) {
		if h.core.Load() != c || h.state == StateOpen && h.sock == nil {
			h.Resume() // it has moved, or its socket is still to arrive
			return
		}
		h.holdOut = false
		if h.sock != nil && h.sock.going != nil {
			h.holdOut, h.sock.going.holdOut = true, false
		}
		if s := h.sock; s != nil && s.paused == &c.held {
			s.paused = nil
			s.alive()
			s.feedBacklog()
			s.resumeReading()
		}
		h.wake(c)
	}); err != nil && h.core.Load() != owner {
		h.Resume()
	}
}
