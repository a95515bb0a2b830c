package dataplane

import (
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// The probe of a connection is called once for every frame, here, where the frame can still be
// held. Package probe has its answers.

// shownFrame names a frame that waits to be written: the next one of its tag, or
// one message.
type shownFrame struct {
	tag frame.Tag
	m   *Message
}

// mayWrite calls the probe for a frame that is about to be written, once. pass is false if the
// write ends before the frame.
func (b *flush) mayWrite(tag frame.Tag, m *Message) (pass bool, err error) {
	h := b.h
	if h.probe == nil {
		return true, nil
	}
	if _, done := h.shown[shownFrame{tag, m}]; done {
		delete(h.shown, shownFrame{tag, m})
		return true, nil
	}
	if pass, err = h.probed(b.s, tag, true); !pass && err == nil {
		h.holdOut = true
		h.showed(tag, m)
	}
	return pass, err
}

// showed remembers that the probe was asked about a frame that is not written
// yet. Before it comes up again, others may overtake it: a keepalive, or a more
// urgent message.
func (h *Handler) showed(tag frame.Tag, m *Message) {
	if h.probe == nil {
		return
	}
	if h.shown == nil {
		h.shown = make(map[shownFrame]struct{})
	}
	h.shown[shownFrame{tag, m}] = struct{}{}
}

// mayRead calls the probe for a frame with a complete header.
func (r *intake) mayRead(s *loop.Socket, tag frame.Tag) bool {
	if r.h.probe == nil || r.throttlePassed {
		return true
	}
	r.throttlePassed = true
	pass, err := r.h.probed(s, tag, false)
	switch {
	case err != nil:
		s.Fault(err)
	case !pass:
		s.Hold()
	}
	return pass
}

// probed asks the probe about a frame: it passes, or is held, or err is the fault.
func (h *Handler) probed(s *loop.Socket, tag frame.Tag, write bool) (pass bool, err error) {
	switch err := h.probe.Frame(tag, write); err {
	case nil:
		return true, nil
	case probe.ErrHold:
		return false, nil
	case probe.ErrHalfClose:
		s.EndWriting()
		return true, nil
	case probe.ErrReset:
		return false, loop.ErrReset
	default:
		return false, err
	}
}
