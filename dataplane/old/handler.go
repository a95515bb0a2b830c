package dataplane

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/mutant"
)

// State is the I/O state of a handler (msgr2.md 10.2).
type State uint8

// The I/O states. Legal changes: none to delay or drop; delay to open, drop or
// delay; open to delay or drop. Nothing leaves drop. While a handler moves to
// another core its old core's record counts as switched: whatever still
// arrives there is passed on.
const (
	StateNone     State = iota // an accepted connection whose fate is open
	StateDelay                 // not connected: queue, do not send
	StateOpen                  // connected
	StateDrop                  // closed: discard
	StateSwitched              // seen by tasks that reach the core it has left
)

func (s State) String() string {
	switch s {
	case StateNone:
		return "none"
	case StateDelay:
		return "delay"
	case StateOpen:
		return "open"
	case StateDrop:
		return "drop"
	case StateSwitched:
		return "switched"
	}
	return "invalid"
}

// Errors of a handler.
var (
	// ErrDropped: the connection is closed for good.
	ErrDropped = errors.New("dataplane: connection closed")
	// ErrQueueFull: the sending queue is at its bound.
	ErrQueueFull = errors.New("dataplane: send queue full")
	// ErrTooLarge: a message has more bytes than MaxMessage.
	ErrTooLarge = errors.New("dataplane: message of 2 GiB or more")
	// ErrInUse: the message is in the queue of a connection already.
	ErrInUse = errors.New("dataplane: message already queued")
	// ErrUnexpectedFrame: a frame that has no place in the data phase.
	ErrUnexpectedFrame = errors.New("dataplane: unexpected frame")
)

// Mirror is what the protocol needs to know of a handler that is not open.
type Mirror struct {
	InSeq  uint64 // highest sequence received
	Queued bool   // something waits to be sent
	Sent   bool   // something was sent and not acknowledged
	// Notes is the number of the handler's last notification. Those up to it
	// are of before, however late they come.
	Notes uint64
}

// Owner is the protocol's side of a handler. Its methods run on the handler's
// core and must not block.
type Owner interface {
	// Dispatch gets a received message, valid during the call unless retained.
	Dispatch(h *Handler, m *Message)
	// Faulted says that the socket is lost: the handler went from open to
	// delay. n numbers what the handler tells its owner, from 1.
	Faulted(n uint64, err error, m Mirror)
	// Queued says, after a delay with NotifyOut, that there is something to
	// send.
	Queued(n uint64)
	// Moving says on the old core that the handler is about to go to another.
	Moving(h *Handler, to *Core)
	// Moved says on the new core that the handler has arrived, as a rule for a
	// socket that is about to open; from is the core that it was on.
	Moved(h *Handler, from *Core, ev Arrival)
	// Happened delivers an event that the protocol posted, in its place among
	// the others.
	Happened(h *Handler, what any)
	// KeepaliveAck says that the peer answered the keepalive that we sent at
	// that time.
	KeepaliveAck(h *Handler, sent Timestamp)
}

// Arrival says why a handler moved.
type Arrival struct {
	Accepted bool // by an accepted socket, else by an outgoing one
	Replace  bool // the connection takes the place of another one's
	Migrated bool // by neither: with the socket that it had, by Migrate
}

// HandlerConfig is fixed for the life of a handler.
type HandlerConfig struct {
	Owner Owner
	// QueueBytes and QueueMessages bound what waits to be sent and, on a
	// lossless session, to be acknowledged; 0: unlimited.
	QueueBytes    int64
	QueueMessages int64
}

// Handler is the I/O side of one connection: what is to be sent, what was sent
// and not acknowledged, the sequence numbers, and the socket while there is
// one. It survives its sockets. One core owns it; the owner changes by Move,
// while the handler is not open, and by Migrate, which takes the socket along.
//
// Send and Keepalive may be called by any goroutine. The other methods are
// the protocol's: it numbers them, under a lock of its own, by calling them in
// order; the handler runs them in that order, whichever core it is on.
type Handler struct {
	cfg  HandlerConfig
	core atomic.Pointer[Core] // owner
	// Any goroutine.
	inbox    atomic.Pointer[Message] // sent, not yet taken by the core; newest first
	notified atomic.Bool             // kick is in a mailbox
	dropped  atomic.Bool             // nothing is accepted or dispatched any more
	wantPing atomic.Bool             // Keepalive was called
	held     queueGauge
	full     atomic.Uint64 // times that there was no room
	acks     ackClock
	kick     task

	posted uint64 // number of the last event posted; the protocol's

	// The rest belongs to the owning core.
	in      uint64   // number of the last event run
	early   []*event // arrived before their turn
	out     uint64   // number of the last notification
	state   State
	notify  bool // tell the owner when something is queued
	lossy   bool
	sock    *socket
	enc     *frame.Encoder
	inDirty bool // in core.dirty

	holdOut bool                    // stopped by a break point, or because the socket is going away
	shown   map[shownFrame]struct{} // to the break point, and not written yet

	queue  outQueue
	sent   messageList // lossless: on the wire, not acknowledged
	inSeq  uint64
	outSeq uint64
	owed   uint64 // messages received and not acknowledged

	ping    bool
	pong    bool
	pongFor Timestamp
	seen    Keepalives
	// On the core's clock: the last keepalive sent, and the first one that
	// nothing has answered yet.
	pinged, asked time.Duration
	waiting       bool // for an answer

	throttles *Throttles
	options   OpenOptions
	stats     HandlerStats
}

// NewHandler makes a handler on core, in state none.
func NewHandler(core *Core, cfg HandlerConfig) *Handler {
	h := &Handler{cfg: cfg}
	h.core.Store(core)
	core.load.Add(1)
	h.kick.run = h.kicked
	h.held.bytes.limit, h.held.messages.limit = cfg.QueueBytes, cfg.QueueMessages
	return h
}

// Core is the present owner. It may change at any moment.
func (h *Handler) Core() *Core { return h.core.Load() }

// Send queues m for transmission and takes over one reference to it; on an
// error that stays with the caller. Messages of one goroutine leave in the order of its calls within a
// priority. Any goroutine, a dispatch included.
func (h *Handler) Send(m *Message) error {
	if h.dropped.Load() {
		return ErrDropped
	}
	if tooLarge(m) {
		return ErrTooLarge
	}
	if !m.queued.CompareAndSwap(false, true) {
		return ErrInUse
	}
	if !h.held.take(m) {
		m.queued.Store(false)
		h.full.Add(1)
		return ErrQueueFull
	}
	for {
		old := h.inbox.Load()
		if old == sealed {
			return h.refuse(m)
		}
		m.next = old
		if h.inbox.CompareAndSwap(old, m) {
			break
		}
	}
	h.touch()
	return nil
}

// MaxMessage is the most payload that Send takes, in bytes: what one write can
// carry, together with what else is gathered for it.
const MaxMessage = math.MaxInt32 - 4<<20

// tooLarge says that a write cannot carry m, so that no core ever meets it.
func tooLarge(m *Message) bool {
	return uint64(len(m.Front))+uint64(len(m.Middle))+uint64(len(m.Data)) > MaxMessage
}

// Keepalive asks for a KEEPALIVE2 frame, as soon as the session is open. Any
// goroutine.
func (h *Handler) Keepalive() {
	h.wantPing.Store(true)
	h.touch()
}

// Room returns a channel that is closed once the sending queue has more room
// than now: take it, try Send, and wait for it if that still found the queue
// full. It is closed as well when the handler is dropped. Any goroutine.
func (h *Handler) Room() <-chan struct{} { return h.held.room() }

// Reserve counts one message of size bytes against the bounds of the sending
// queue, for a queue that the caller keeps, or returns ErrQueueFull. Unreserve
// gives it back. Any goroutine.
func (h *Handler) Reserve(size int) error {
	if !h.held.reserve(int64(size)) {
		h.full.Add(1)
		return ErrQueueFull
	}
	return nil
}

// Unreserve undoes a Reserve of the same size. Any goroutine.
func (h *Handler) Unreserve(size int) { h.held.giveBack(int64(size)) }

// QueuedOut is how many messages and bytes wait to be sent or acknowledged.
func (h *Handler) QueuedOut() (messages, bytes int64) {
	return h.held.messages.used.Load(), h.held.bytes.used.Load()
}

// touch tells the owning core that there is something to take.
func (h *Handler) touch() {
	if !h.notified.Swap(true) {
		h.core.Load().post(&h.kick)
	}
}

// kicked runs on a core because of touch.
func (h *Handler) kicked(c *Core) {
	if owner := h.core.Load(); owner != c {
		owner.post(&h.kick) // it has moved
		return
	}
	h.notified.Store(false)
	h.takeInbox()
	if h.wantPing.Load() && h.wantPing.Swap(false) {
		h.ping = true
	}
	h.wake(c)
}

// wake has the handler swept in this turn, or tells the protocol that waits
// for something to send.
func (h *Handler) wake(c *Core) {
	switch {
	case h.state == StateOpen:
		c.markDirty(h)
	case h.notify && h.pendingOut():
		h.tellQueued()
	}
}

// takeInbox moves what Send left into the queue, oldest first.
func (h *Handler) takeInbox() {
	if !h.inboxed() {
		return
	}
	var first *Message
	for m := h.inbox.Swap(nil); m != nil; {
		next := m.next
		m.next = first
		first, m = m, next
	}
	for m := first; m != nil; {
		next := m.next
		if h.state == StateDrop {
			m.next = nil
			h.letGo(m)
		} else {
			h.queue.push(m)
		}
		m = next
	}
}

// letGo releases a message that leaves the handler for good.
func (h *Handler) letGo(m *Message) {
	h.held.put(m)
	m.queued.Store(false)
	m.Release()
}

// pendingOut says whether there is anything to send.
func (h *Handler) pendingOut() bool {
	return h.queue.n > 0 || h.ping || h.pong || (h.owed > 0 && !h.lossy)
}

func (h *Handler) mirror() Mirror {
	return Mirror{InSeq: h.inSeq, Queued: h.pendingOut() || h.inboxed(), Sent: h.sent.n > 0, Notes: h.out}
}

func (h *Handler) tellQueued() {
	h.notify = false
	if mutant.LoseNotify {
		return
	}
	h.out++
	h.cfg.Owner.Queued(h.out)
}

// lost is the end of the handler's socket. On the core.
func (h *Handler) lost(s *socket, err error) {
	if h.sock != s {
		return
	}
	h.closeSocket(nil)
	if h.state != StateOpen {
		return
	}
	h.state = StateDelay
	h.takeInbox()
	h.out++
	h.cfg.Owner.Faulted(h.out, err, h.mirror())
}

// closeSocket ends the socket, if there is one. What one sweep had taken of
// keepalives is lost with it; acks are replaced by the numbers of the
// reconnect.
func (h *Handler) closeSocket(err error) {
	s := h.sock
	if s == nil {
		return
	}
	h.sock = nil
	h.holdOut, h.shown = false, nil // break points belong to the socket
	s.handler = nil
	s.core.stats.Handlers--
	if err != nil {
		s.fault(err)
	}
	h.enc.Wipe()
	h.enc = nil
}

// clear empties every queue.
func (h *Handler) clear() {
	h.takeInbox()
	for m := h.sent.pop(); m != nil; m = h.sent.pop() {
		h.letGo(m)
	}
	for m := h.queue.pop(); m != nil && !mutant.LeakUnsent; m = h.queue.pop() {
		h.letGo(m)
	}
	h.ping, h.pong, h.owed = false, false, 0
	h.wantPing.Store(false)
}
