package dataplane

import (
	"errors"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// ErrUndelivered: a connection ended, or cannot go on, with messages that were
// queued and not delivered.
var ErrUndelivered = errors.New("dataplane: messages were not delivered")

// drainEvery is the interval at which a handler checks its drain.
const drainEvery = time.Millisecond

// DrainOptions say how a handler drains.
type DrainOptions struct {
	// Idle says whether the user may still send: while it returns false the queue
	// is not closed. It runs on the core. nil: always.
	Idle func() bool
	// Hopeless reports whether a session without a socket will never have one again. It runs on
	// the core, when messages are left to be sent.
	Hopeless func() bool
	// Done is called once, on the core: nil when everything that Send had taken was
	// written and, on a lossless session, acknowledged, and the peer has hung up
	// since; else ErrUndelivered, or ErrDropped if the handler was closed before.
	Done func(error)
}

// drain is a handler on its way to the end. Owner: the handler's core.
type drain struct {
	h     *Handler
	opt   DrainOptions
	timer loop.Timer
	bye   *loop.Socket // the socket whose writing has ended; nil: none yet
	holds bool         // messages were left at the last look
	reset bool         // messages were dropped with their session, or lost in a write
	done  bool
}

// Drain ends a handler in good order. Later messages of the peer are neither dispatched nor
// acknowledged, as after Refuse. Queued messages are sent; when none is left Send fails with
// ErrFrozen, our direction of the socket ends, and the peer has time to read everything and
// hang up. The owner closes the handler afterwards. Call it once. Any goroutine.
func (h *Handler) Drain(opt DrainOptions) {
	h.Do(func(c *loop.Core) { h.drain(c, opt) })
}

func (h *Handler) drain(c *loop.Core, opt DrainOptions) {
	d := &drain{h: h, opt: opt}
	d.timer.Fire = func(c *loop.Core, _ time.Duration) { d.look(c) }
	h.draining = d
	d.look(c)
}

// look checks the progress of the drain, from time to time. On its core; d may be nil.
func (d *drain) look(c *loop.Core) {
	if d == nil || d.done {
		return
	}
	switch h := d.h; {
	case h.sock == nil && h.state == stateOpen:
		return // between two cores: arrived looks again
	case d.bye != nil && h.sock == d.bye:
		// The peer reads, and has not hung up.
	case h.state == stateDrop: // it was closed before
		d.end(ErrDropped)
		return
	case d.left():
		if h.sock == nil && d.opt.Hopeless != nil && d.opt.Hopeless() {
			// Keepalives and acknowledgements are for a socket that is gone.
			if d.holds || d.idle() && h.seal() {
				d.end(nil)
				return
			}
		}
	case !h.seal(): // a Send is under way
	case h.sock == nil:
		d.end(nil)
		return
	default:
		d.bye = h.sock
		h.sock.EndWriting()
	}
	c.Arm(&d.timer, c.Now()+drainEvery)
}

// left reports whether messages are left to be sent, or may come.
func (d *drain) left() bool {
	h := d.h
	d.holds = h.inboxed() || h.queue.n > 0 || h.sent.n > 0 || h.writing() > 0
	return d.holds || h.pendingOut() || !d.idle()
}

// idle reports whether the user sends no more messages.
func (d *drain) idle() bool { return d.opt.Idle == nil || d.opt.Idle() }

// leaves stops the timer, which belongs to the core: look goes on at the next one. d may be nil.
func (d *drain) leaves(c *loop.Core) {
	if d != nil {
		c.Stop(&d.timer)
	}
}

// closes ends the drain with its handler, whose queues are still there. d may be nil.
func (d *drain) closes(c *loop.Core) {
	if d == nil || d.done {
		return
	}
	c.Stop(&d.timer)
	d.left()
	d.end(nil)
}

// lost is the end of a socket. A lossy session has lost what was in a write, and perhaps what the
// peer had not read when it did not hang up.
func (d *drain) lost(s *loop.Socket, err error) {
	size, _ := s.Writing()
	broke := !errors.Is(err, loop.ErrPeerClosed)
	d.reset = d.reset || d.h.lossy && (d.holds && size > 0 || broke && (d.holds || d.bye == s))
	if d.bye == s && !d.done {
		d.end(nil)
	}
}

// end tells the outcome. Without err messages that are left, or were dropped, are the error.
func (d *drain) end(err error) {
	if err == nil && (d.holds || d.reset) {
		err = ErrUndelivered
	}
	d.done = true
	d.opt.Done(err)
}

// seal refuses later messages, unless one was sent just now.
func (h *Handler) seal() bool {
	return h.inbox.Load() == sealed || h.inbox.CompareAndSwap(nil, sealed)
}
