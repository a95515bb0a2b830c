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
	switch err := h.probe.Frame(tag, true); err {
	case nil:
		return true, nil
	case probe.ErrHold:
		h.holdOut = true
		h.showed(tag, m)
		return false, nil
	case probe.ErrHalfClose:
		b.s.EndWriting()
		return true, nil
	default:
		return false, faultOf(err)
	}
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
	switch err := r.h.probe.Frame(tag, false); err {
	case nil:
		return true
	case probe.ErrHold:
		s.Hold()
		return false
	case probe.ErrHalfClose:
		s.EndWriting()
		return true
	default:
		s.Fault(faultOf(err))
		return false
	}
}

// faultOf is the fault that an answer of the probe means.
func faultOf(answer error) error {
	if answer == probe.ErrReset {
		return loop.ErrReset
	}
	return answer
}
