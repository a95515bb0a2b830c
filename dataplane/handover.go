package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// ErrFrozen: the connection is about to belong to another process.
var ErrFrozen = errors.New("dataplane: connection is being handed over")

// sealed stands in the inbox of a frozen handler: Send finds it there instead
// of a place for its message, in the same atomic step.
var sealed = new(Message)

// HandlerState is the state of a lossless handler for its successor in another process. Its
// owner holds a reference to each message, until Release.
type HandlerState struct {
	InSeq  uint64     // highest sequence received and dispatched
	OutSeq uint64     // highest sequence sent; that of the last of Sent
	Sent   []*Message // sent and not acknowledged, without a gap
	Replay []*Message // to be sent again before everything else
	Queued []*Message // to be sent, by falling priority
}

// Release gives the references to the messages back. Any goroutine.
func (st *HandlerState) Release() {
	for _, list := range [][]*Message{st.Sent, st.Replay, st.Queued} {
		for _, m := range list {
			m.Release()
		}
	}
}

// Freeze closes the socket, refuses later messages with ErrFrozen, and gives answer, on the
// core, the state. A message for which Send has returned nil is in it. The state is empty if
// the handler is closed.
func (h *Handler) Freeze(answer func(HandlerState)) {
	h.post(1, func(h *Handler, _ *loop.Core) {
		if h.state == stateDrop {
			answer(HandlerState{})
			return
		}
		h.closeSocket(loop.ErrLinkClosed)
		h.state, h.reportQueued = stateDelay, false
		for h.inbox.Load() != sealed {
			h.takeInbox()
			h.inbox.CompareAndSwap(nil, sealed)
		}
		answer(h.export())
	})
}

// Thaw takes back a Freeze: Send works again, and the handler is in delay.
func (h *Handler) Thaw() {
	h.post(1, func(h *Handler, _ *loop.Core) {
		h.inbox.CompareAndSwap(sealed, nil)
		h.held.wake()
	})
}

func (h *Handler) export() HandlerState {
	st := HandlerState{InSeq: h.inSeq, OutSeq: h.outSeq, Sent: h.sent.all(nil), Replay: h.queue.replay.all(nil)}
	st.Queued = h.queue.all(st.Queued)
	for _, list := range [][]*Message{st.Sent, st.Replay, st.Queued} {
		for _, m := range list {
			m.Retain()
		}
	}
	return st
}

// all appends the messages of the list to to.
func (l *messageList) all(to []*Message) []*Message {
	for m := l.first; m != nil; m = m.next {
		to = append(to, m)
	}
	return to
}

// Restore gives a new handler the state of a frozen one, in delay. It takes over one reference
// to each message, beyond the bounds of the queue. Call it first; after an error the handler is
// of no use.
func (h *Handler) Restore(st HandlerState) error {
	if n := uint64(len(st.Sent)); n > st.OutSeq {
		return fmt.Errorf("dataplane: %d messages sent up to sequence %d", n, st.OutSeq)
	}
	h.state, h.inSeq, h.outSeq = stateDelay, st.InSeq, st.OutSeq
	for _, m := range slices.Concat(st.Sent, st.Replay, st.Queued) {
		if err := h.charge(m); err != nil {
			return err
		}
	}
	for i, m := range st.Sent {
		m.seq = st.OutSeq - uint64(len(st.Sent)-1-i)
		h.sent.push(m)
	}
	for _, m := range st.Replay {
		h.queue.replay.push(m)
		h.queue.n++
		h.queue.bytes += int64(m.Size())
	}
	for _, m := range st.Queued {
		h.queue.push(m)
	}
	return nil
}

// charge counts a message that did not come by Send.
func (h *Handler) charge(m *Message) error {
	if !m.queued.CompareAndSwap(false, true) {
		return ErrInUse
	}
	m.queuedBytes, m.timing = int64(m.Size()), untimed
	m.payload().queue()
	h.held.add(m.queuedBytes)
	return nil
}

// refuse undoes the steps of Send for m after it found the inbox sealed. It wakes no waiter:
// there is no room.
func (h *Handler) refuse(m *Message) error {
	m.tracker = nil
	h.held.undo(1, m.queuedBytes)
	m.payload().dequeue()
	m.queued.Store(false)
	return ErrFrozen
}

// inboxed reports whether messages of Send wait for the core.
func (h *Handler) inboxed() bool {
	m := h.inbox.Load()
	return m != nil && m != sealed
}
