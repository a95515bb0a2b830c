package dataplane

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// ioState is the I/O state of a handler (Ceph's io_handler.cc).
type ioState uint8

// The I/O states. Legal changes: none to delay or drop; delay to open, drop or
// delay; open to delay or drop. Nothing leaves drop. A task that reaches a core which the
// handler has left is passed on.
const (
	stateNone  ioState = iota // an accepted connection that is not decided yet
	stateDelay                // not connected: queue, do not send
	stateOpen                 // connected
	stateDrop                 // closed: discard
)

var stateNames = [...]string{stateNone: "none", stateDelay: "delay", stateOpen: "open", stateDrop: "drop"}

func (s ioState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
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
	// errUnexpectedFrame: a frame that has no place in the data phase.
	errUnexpectedFrame = errors.New("dataplane: unexpected frame")
)

// Snapshot is a snapshot for the protocol of a handler that is not open.
type Snapshot struct {
	InSeq  uint64 // highest sequence received
	OutSeq uint64 // highest sequence sent, without messages that are queued again
	Queued bool   // something waits to be sent
	Sent   bool   // something was sent and not acknowledged
	Useful bool   // something was received or acknowledged since the end of the socket before
	// Notifications is the number of the handler's last notification. Ignore
	// notifications numbered up to it: they are older than the snapshot.
	Notifications uint64
}

// Owner is the protocol's side of a handler. Its methods run on the handler's
// core and must not block.
type Owner interface {
	// Dispatch gets a received message, valid during the call unless retained.
	Dispatch(h *Handler, m *Message)
	// Faulted says that the socket is lost: the handler went from open to delay. n is
	// the number of the notification, from 1.
	Faulted(n uint64, err error, m Snapshot)
	// Queued says, after a Delay with notify, that there is something to send.
	Queued(n uint64)
	// Moving says on the old core that the handler is about to go to another.
	Moving(h *Handler, to *loop.Core)
	// Moved says on the new core that the handler has arrived, as a rule for a
	// socket that is about to open; from is the core that it was on.
	Moved(h *Handler, from *loop.Core, ev MoveCause)
	// Happened delivers an event that the protocol posted, in its place among
	// the others.
	Happened(h *Handler, what any)
	// KeepaliveAck says that the peer answered the keepalive that we sent at
	// that time.
	KeepaliveAck(h *Handler, sent Timestamp)
}

// MoveCause says why a handler moved.
type MoveCause struct {
	Accepted bool // by an accepted socket, else by an outgoing one
	Replace  bool // the connection takes the place of another one's
	Migrated bool // by neither: with the socket that it had, by Migrate
}

// HandlerConfig is fixed for the life of a handler.
type HandlerConfig struct {
	Owner Owner
	// QueueBytes and QueueMessages bound the messages that wait to be sent and, on a
	// lossless session, for their ack; 0: 256 MiB and 262144 messages, negative:
	// unlimited.
	QueueBytes    int64
	QueueMessages int64
	// Budget bounds the same over all handlers that share it; nil: no bound.
	Budget *SendBudget
}

// Handler is the I/O side of one connection: the messages to send, the sent messages without an
// ack, the sequence numbers, and the socket while there is one. It survives its sockets. One
// core owns it; the owner changes by Move, while the handler is not open, and by Migrate,
// which takes the socket along.
//
// Any goroutine may call the methods whose text says so. The other methods belong to the
// protocol, which calls them on one goroutine at a time; the handler runs them in the order of
// the calls, on its core.
type Handler struct {
	owner Owner
	core  loop.Owner
	// Any goroutine.
	inbox      atomic.Pointer[Message] // sent, not yet taken by the core; newest first
	notified   atomic.Bool             // touchTask is in a mailbox
	dropped    atomic.Bool             // no message is accepted or dispatched any more
	wants      atomic.Uint32           // askedPing and others: requests that the core has not carried out yet
	handedOver atomic.Bool             // another process has the session
	paused     atomic.Bool             // Pause, and not Resume, was called last
	timed      atomic.Uint32           // which of the next messages is, see beginTiming
	held       queueGauge
	full       atomic.Uint64 // times that there was no room
	touchTask  loop.Task

	posted uint64 // number of the last event posted; the protocol's

	// The rest belongs to the owning core. There is one for each connection: state that an
	// idle connection does not need lies behind a pointer.
	in           Ordered[*event]
	out          uint64 // number of the last notification
	state        ioState
	reportQueued bool // notify the owner when a message is queued
	lossy        bool
	holdOut      bool  // stopped by a break point
	useful       bool  // Snapshot.Useful
	waiting      bool  // for the answer to a keepalive
	givenUp      uint8 // sockets since the last ack, because of a full receive budget
	sock         *loop.Socket
	framer       framer   // of sock; &rx without one
	rx           framer2  // the framer if sock speaks msgr2
	local        *perCore // of its core, since there was a sock

	draining *drain                  // nil: not
	shown    map[shownFrame]struct{} // to the break point, and not written yet

	posts   *postings // nil: there never were any
	queue   outQueue
	sent    messageList // lossless: on the wire, not acknowledged
	inSeq   uint64
	outSeq  uint64
	unacked uint64 // messages received and not acknowledged

	ping     bool
	pong     bool
	receives loop.ReceiveView // how sock receives; any goroutine looks at it
	seen     Keepalives
	// Keepalives of the present socket that the peer can still answer.
	unanswered stamps
	// On the core's clock: the last keepalive sent, and the first one without an answer.
	pinged, asked time.Duration
	askedAt       uint64        // the bytes before that first one on the socket
	controlUntil  time.Duration // frames without use occupy it up to then, see useless
	idle          loop.Timer    // looks after an open connection
	progress      loop.Timer    // while the socket is stopped or rests, or a frame is unfinished

	throttles *loop.Throttles
	pace      *pace         // of the last socket
	probe     *probe.Socket // of the socket; nil: none
	tap       probe.Tap     // of the socket; nil: none
	stats     handlerCounters
}

// Requests of any goroutine to the core.
const (
	askedPing   = 1 << iota // Keepalive
	askedWrite              // Wanted
	askedPause              // Pause
	askedResume             // Resume
)

// NewHandler makes a handler on core, in state none.
func NewHandler(core *loop.Core, cfg HandlerConfig) *Handler {
	h := &Handler{owner: cfg.Owner}
	h.core.Store(core)
	core.AddLoad(1)
	h.touchTask.Run = h.touched
	h.idle.Fire, h.progress.Fire = h.check, h.checkProgress
	h.rx.h, h.framer = h, &h.rx
	h.held.bytes.limit = bound(cfg.QueueBytes, DefaultQueueBytes)
	h.held.messages.limit = bound(cfg.QueueMessages, DefaultQueueMessages)
	h.held.total = cfg.Budget
	return h
}

// Core is the present owner. It may change at any moment. Any goroutine.
func (h *Handler) Core() *loop.Core { return h.core.Load() }

// Send queues m for transmission and takes over one reference to it; on an
// error that stays with the caller. Messages of one goroutine leave in the order
// of its calls within a priority. A received message counts against the sending
// queue from then on, and no longer against the receive budget. Any goroutine,
// a dispatch included.
func (h *Handler) Send(m *Message) error { return h.SendTracked(m, nil) }

// SendTracked is Send for a message with a Tracker, if t is not nil: unwritten, it outlives a reset of its
// session. After an error t gets no call. Any goroutine.
func (h *Handler) SendTracked(m *Message, t Tracker) error {
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
	m.tracker, m.outcome = t, OutcomeNone
	h.beginTiming(m)
	m.payload().queue()
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

// MaxMessage is the largest payload that Send takes, in bytes: one write can carry it together
// with the rest of its frame.
const MaxMessage = math.MaxInt32 - 4<<20

// tooLarge says that a write cannot carry m, so that no core ever meets it.
func tooLarge(m *Message) bool {
	return uint64(len(m.Front))+uint64(len(m.Middle))+uint64(len(m.Data)) > MaxMessage
}

// Keepalive asks for a KEEPALIVE2 frame (to a peer of msgr1 that lacks it: a
// KEEPALIVE), as soon as the session is open. Any goroutine.
func (h *Handler) Keepalive() { h.ask(askedPing) }

// Wanted reports that others wait for memory which messages of the handler keep until they are
// sent (Message.BoundElsewhere). On a lossy session a write that is slower than
// OpenOptions.LeastRate then ends the socket with errTooSlow, which frees them. On a lossless
// one it has no effect: only acks free them, or the end of the session. Any goroutine.
func (h *Handler) Wanted() { h.ask(askedWrite) }

// ask has the core that then owns the handler carry out a request.
func (h *Handler) ask(what uint32) {
	h.wants.Or(what)
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
func (h *Handler) Unreserve(size int) { h.held.release(int64(size)) }

// QueuedOut are the messages and bytes that wait to be sent or acknowledged.
func (h *Handler) QueuedOut() (messages, bytes int64) {
	return h.held.messages.used.Load(), h.held.bytes.used.Load()
}

// touch wakes the owning core to take the inbox.
func (h *Handler) touch() {
	// Usually the core is notified already: a load is cheaper.
	if !h.notified.Load() && !h.notified.Swap(true) {
		h.core.Post(&h.touchTask)
	}
}

// touched runs on the owning core after touch.
func (h *Handler) touched(c *loop.Core) {
	h.notified.Store(false)
	h.attend(c)
}

// attend takes the inbox, and carries out what was asked.
func (h *Handler) attend(c *loop.Core) {
	h.takeInbox()
	if h.wants.Load() != 0 {
		asked := h.wants.Swap(0)
		h.ping = h.ping || asked&askedPing != 0
		if asked&askedWrite != 0 {
			h.checkWrite()
		}
		h.holdPaused(h.sock)
		if asked&askedResume != 0 {
			h.resume(c)
		}
	}
	h.wake()
}

// wake has queued messages written in this turn, or notifies the protocol, if it waits for a
// message to send.
func (h *Handler) wake() {
	switch {
	case h.state == stateOpen:
		h.mark()
	case h.reportQueued && h.pendingOut():
		h.tellQueued()
	}
}

// mark has the socket, if there is one, ask for a write.
func (h *Handler) mark() {
	if h.sock != nil {
		h.sock.Mark()
	}
}

// takeInbox moves the messages of Send into the queue, oldest first.
func (h *Handler) takeInbox() {
	if !h.inboxed() {
		return
	}
	h.drawTimed()
	var first *Message
	for m := h.inbox.Swap(nil); m != nil; {
		next := m.next
		m.next = first
		first, m = m, next
	}
	for m := first; m != nil; {
		next := m.next
		if h.state == stateDrop {
			m.next = nil
			h.releaseMessage(m, h.leftover())
		} else {
			h.queue.push(m)
			if m.tracker != nil {
				m.tracker.Taken()
			}
		}
		m = next
	}
}

// releaseMessage releases a message that leaves the handler for good. A received one
// that the user has kept counts against the receive budget again.
func (h *Handler) releaseMessage(m *Message, o Outcome) {
	t := h.uncharge(m, o)
	m.Release()
	left(t, o)
}

// uncharge says that m is not in a queue of the handler any more. It returns the Tracker to be
// called (left) once m is released.
func (h *Handler) uncharge(m *Message, o Outcome) Tracker {
	t := m.tracker
	m.tracker, m.outcome = nil, o
	h.held.put(m)
	m.dequeue()
	m.queued.Store(false)
	return t
}

// pendingOut reports whether there is a frame to send.
func (h *Handler) pendingOut() bool {
	if h.draining != nil && h.draining.bye != nil {
		return false // our direction of the stream has ended
	}
	return h.queue.n > 0 || h.ping || h.pong || (h.unacked > 0 && !h.lossy)
}

func (h *Handler) takeSnapshot() Snapshot {
	return Snapshot{InSeq: h.inSeq, OutSeq: h.outSeq, Queued: h.pendingOut() || h.inboxed(), Sent: h.sent.n > 0, Useful: h.useful, Notifications: h.out}
}

func (h *Handler) tellQueued() {
	h.reportQueued = false
	h.out++
	h.owner.Queued(h.out)
}

// lost is the end of the handler's socket. On the core.
func (h *Handler) lost(s *loop.Socket, err error) {
	if h.sock != s {
		return
	}
	h.tellTap(err)
	h.closeSocket(nil)
	if h.draining != nil {
		h.draining.lost(s, err)
	}
	if h.state == stateOpen {
		h.fault(err)
	}
}

// fault brings a handler whose socket is lost from open to delay, and tells its owner.
func (h *Handler) fault(err error) {
	h.state = stateDelay
	h.takeInbox()
	h.out++
	h.owner.Faulted(h.out, err, h.takeSnapshot())
	h.useful = false
}

// tellTap reports the end of the socket to its tap.
func (h *Handler) tellTap(why error) {
	if t := h.tap; t != nil {
		h.tap = nil
		t.Ended(why)
	}
}

// closeSocket ends the socket, if there is one. Keepalives of a write under way
// are lost with it; the sequence numbers of the reconnect replace acks.
func (h *Handler) closeSocket(err error) {
	s := h.sock
	if s == nil {
		return
	}
	c := s.Core()
	h.sock = nil
	if err != nil {
		h.tellTap(err)
		s.Close(err)
	}
	c.Stop(&h.idle)
	c.Stop(&h.progress)
	h.endFraming(s)
}

// endFraming lets go of an unfinished frame and of the codec. s is nil if the socket is
// between two cores.
func (h *Handler) endFraming(s *loop.Socket) {
	h.holdOut, h.shown = false, nil // break points belong to the socket
	h.framer.end(s)
	h.framer = &h.rx
}

// clear empties every queue, and says whether a message was dropped. With keep, unwritten messages with a
// Tracker stay, in their order.
func (h *Handler) clear(keep bool) (dropped bool) {
	h.takeInbox()
	dropped = h.sent.n > 0
	for m := h.sent.pop(); m != nil; m = h.sent.pop() {
		h.releaseMessage(m, h.leftover())
	}
	var kept messageList
	for m := h.queue.pop(); m != nil; m = h.queue.pop() {
		if keep && m.tracker != nil {
			kept.push(m)
			continue
		}
		dropped = true
		h.releaseMessage(m, h.leftover())
	}
	for m := kept.pop(); m != nil; m = kept.pop() {
		h.queue.push(m)
	}
	h.ping, h.pong, h.unacked = false, false, 0
	h.wants.And(askedPause | askedResume)
	return dropped
}

// DefaultControlRate bounds the frames without use in a second, see progress.go.
const DefaultControlRate = 1000

// Defaults of HandlerConfig and OpenOptions. A zero field stands for its default
// here as in package control, a negative one for no bound.
const (
	DefaultQueueBytes    = 256 << 20
	DefaultQueueMessages = 256 << 10
	DefaultIdleAfter     = 900 * time.Second
	DefaultLeastRate     = 64 << 10
	DefaultMessageGrace  = 10 * time.Second
)

// pace has the times and rates of OpenOptions, with the defaults; 0 stands for no bound. It never changes.
type pace struct {
	idleAfter, keepaliveEvery, keepaliveTimeout time.Duration

	leastRate    int64
	messageGrace time.Duration
	controlRate  int
	alignFrom    int
}

func paceOf(o *OpenOptions) pace {
	return pace{
		idleAfter:      bound(o.IdleAfter, DefaultIdleAfter),
		keepaliveEvery: o.KeepaliveEvery, keepaliveTimeout: o.KeepaliveTimeout,
		leastRate:    bound(o.LeastRate, DefaultLeastRate),
		messageGrace: bound(o.MessageGrace, DefaultMessageGrace),
		controlRate:  DefaultControlRate,
		alignFrom:    o.AlignFrom,
	}
}

// bound is a configured bound n in the form of a handler: the default for 0, and 0 (no bound)
// for a negative n.
func bound[T int | int64 | time.Duration](n, byDefault T) T {
	if n == 0 {
		return byDefault
	}
	return max(n, 0)
}

// Pause stops reading, on this socket and later ones, until Resume: the peer then fills its own
// queue, and does not count as dead. Acks are not read either. A connection that a full
// receive budget had stopped before may bring one message more. The last call of Pause or
// Resume holds, even if the handler moves meanwhile. Any goroutine.
func (h *Handler) Pause() {
	h.paused.Store(true)
	h.ask(askedPause)
}

// Resume lets a connection go on that a probe or Pause stopped. Any goroutine.
func (h *Handler) Resume() {
	h.paused.Store(false)
	h.Unhold()
}

// Unhold lets a connection go on that a probe stopped, unless Pause has stopped it too. Any goroutine.
func (h *Handler) Unhold() { h.ask(askedResume) }

// resume lets the socket go on.
func (h *Handler) resume(c *loop.Core) {
	s := h.sock
	if s == nil && h.state == stateOpen {
		h.wants.Or(askedResume) // arrived goes on, once the socket is there
		return
	}
	h.holdOut = false
	if s != nil && !h.paused.Load() {
		h.asked = c.Now() // the peer was not silent: we did not read
		s.Release()
	}
}

// holdPaused stops a socket, if the handler is paused.
func (h *Handler) holdPaused(s *loop.Socket) {
	if s != nil && h.paused.Load() {
		s.Hold()
	}
}
