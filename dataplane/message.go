package dataplane

import (
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Priorities of messages (Ceph's frames_v2.h, MESSAGE).
const (
	PriorityLow     uint16 = 64
	PriorityDefault uint16 = 127
	PriorityHigh    uint16 = 196
	PriorityHighest uint16 = 255
)

// Message is one application message: a typed header and up to three payload segments.
//
// Any goroutine makes a message to send, with NewMessage or a composite literal. Send takes
// over one reference: the payload must not change until Release brings the count to zero and
// Free runs. That is after the bytes were written on a lossy session, and after the peer
// acknowledged them on a lossless one.
//
// A received message belongs to the messenger. It is valid during the dispatch call; to keep
// it longer call Retain in that call, and Release later from any goroutine. After Retain a
// received message can be sent, to its own connection or to another one: then it counts
// against the sending queue of that connection, and no longer against the receive budget.
// Call Changed before, if bytes of its payload were changed.
type Message struct {
	Type          uint16 // application's message type
	Priority      uint16 // 0 means PriorityDefault
	Version       uint16 // encoding version of the payload
	CompatVersion uint16 // oldest decoder that works, 0: unknown
	TID           uint64 // application's transaction id
	DataOff       uint16 // hint for the receiver: offset of Data within a page

	Front  []byte
	Middle []byte
	// Data of a received message begins on a page (an address that 4096 divides) if it
	// has at least Config.LargeFrom bytes, or OpenOptions.AlignFrom if that is less: it
	// can be written with direct I/O without a copy. It then lies in a buffer of its own,
	// and Retain copies nothing. Exceptions: data that the peer has compressed, a peer of
	// msgr1 that has set DataOff, and the connection to ourselves, which brings the sent
	// memory. In posted memory (Posted) it begins where that begins.
	Data []byte

	// Free, if set, is called once when the last reference to a message to send is
	// released. It may run on a core: it must be short and must not block. Outcome
	// has the fate of the message.
	Free func(*Message)

	// Context is the sender's own, untouched by the messenger; of a received message,
	// that of its dispatchers.
	Context any

	next *Message     // inbox, pending or sent list: one at a time
	prev *Message     // of its class, in an outQueue only
	last *Message     // of its class, if it is the first one
	refs atomic.Int32 // 0 stands for one reference: the zero Message is usable

	since   time.Duration // of timing, on the clock of the plane
	timing  timing        // untimed in most
	outcome Outcome       // of the last Send; written by the core that lets go of it

	seq         uint64      // on the session that sent or received it
	queuedBytes int64       // charged to the sending queue
	queued      atomic.Bool // in the queue of a handler
	elsewhere   bool        // its memory counts elsewhere (BoundElsewhere)
	tracker     Tracker     // while it is queued and was not written; nil: none

	// Received messages only.
	home    *perCore     // its free list takes the message back; nil: made by the user
	loan    loop.Loan    // how it gets there
	buf     *loop.Buffer // payload memory, if it is the message's own
	dataBuf *loop.Buffer // that of Data, if it has one of its own
	crcs    segmentCRCs  // of the payload as it came; a clone's as well
	leased  bool         // payload, but for posted data, lies in a buffer of the running dispatch
	posted  bool         // Data lies in memory that the user has posted
	charge  loop.Charge  // its part of the receive budget
	queues  atomic.Int32 // sending queues, and writes in flight, that have it or a clone of it

	of *Message // a clone: the message that has the payload
}

// NewMessage makes a message of the given type with one reference.
func NewMessage(typ uint16, front, data []byte) *Message {
	return &Message{Type: typ, Front: front, Data: data}
}

// Seq is the sequence number on the session: set when a received message is
// dispatched, and when a sent one goes on the wire.
func (m *Message) Seq() uint64 { return m.seq }

// Size is the length of the payload in bytes.
func (m *Message) Size() int { return len(m.Front) + len(m.Middle) + len(m.Data) }

// BoundElsewhere sets whether the memory of a message to send counts against another budget
// until its release, for example that of file reads (Config.FileBytes): sending queues then
// take it beyond their bounds, and do not count its bytes. The maker of the message calls it,
// before Send.
func (m *Message) BoundElsewhere(yes bool) { m.elsewhere = yes }

// Posted says that Data of a received message lies in memory that the user has posted for
// it, and that is the user's again: the messenger does not touch it any more, but that a
// message which is sent on (Send, Clone) is read there until it is released.
func (m *Message) Posted() bool { return m.posted }

// Retain adds a reference. The first Retain of a received message must be
// called during its dispatch, on the dispatching goroutine: it moves a small
// payload out of the receive buffer. Later ones may come from any goroutine
// that holds a reference.
func (m *Message) Retain() {
	if m.leased {
		m.detach()
	}
	if invariants.Holding && m.home != nil {
		m.home.holders.Hold(m, m.Size())
	}
	m.refs.Add(1)
}

// Release gives one reference back. Any goroutine may call it. After the last
// one the message and its payload must not be touched.
func (m *Message) Release() {
	if m.letGo() {
		m.home.core.Return(&m.loan)
	}
}

// releaseOn is Release on the core of l.
func (m *Message) releaseOn(l *perCore) {
	switch {
	case !m.letGo():
	case m.home == l:
		l.recycle(m)
	default:
		m.home.core.Return(&m.loan)
	}
}

// sole reports that the caller, on the core of l, has the only reference to a message that was
// received there.
func (m *Message) sole(l *perCore) bool { return m.home == l && m.refs.Load() == 0 }

// done gives back a message that sole was said of.
func (m *Message) done() {
	m.charge.Release()
	m.home.recycle(m)
}

// letGo gives one reference back, and says whether a received message has to
// return to its core.
func (m *Message) letGo() bool {
	if n := m.refs.Add(-1); n >= 0 {
		return false
	} else if n < -1 {
		panic("ringmsgr: message released more often than retained")
	}
	m.charge.Release()
	if m.home != nil {
		return true
	}
	if m.Free != nil {
		m.refs.Store(0) // it may use the message again
		m.Free(m)
	}
	return false
}

// dispatched gives the reference of the dispatch back, on the core.
func (m *Message) dispatched() {
	if m.sole(m.home) {
		m.done()
		return
	}
	if m.charge.Bounded() && m.queues.Load() == 0 {
		m.recharge()
	}
	m.releaseOn(m.home)
}

// Clone returns a message to send with the header and the payload of m, which it keeps until
// its own release: a received message can be sent to several peers without a copy, and counts
// against their sending queues. (A message of your own that refers to the payload of a
// received one, and releases that in Free, leaves it in the receive budget: at the bound
// nothing is read until it is sent and acknowledged.) As for Retain, make the first call for a
// received message during its dispatch. While both messages live, only the fields of their
// headers may change.
func (m *Message) Clone() *Message {
	p := m.payload()
	p.Retain()
	return &Message{
		Type: m.Type, Priority: m.Priority, Version: m.Version, CompatVersion: m.CompatVersion, TID: m.TID, DataOff: m.DataOff,
		Front: m.Front, Middle: m.Middle, Data: m.Data, crcs: m.crcs, of: p, Free: func(*Message) { p.Release() },
	}
}

// payload is the message that has the payload of m.
func (m *Message) payload() *Message {
	if m.of != nil {
		return m.of
	}
	return m
}

// queue says that a sending queue has the payload now: its memory is charged
// there.
func (m *Message) queue() {
	if m.charge.Bounded() && m.queues.Add(1) == 1 {
		m.charge.Release()
	}
}

// dequeue says that a sending queue, or a write, is about to release the message. While the user
// holds it or another one with its payload, that counts against the receive budget again.
func (m *Message) dequeue() {
	p := m.payload()
	if !p.charge.Bounded() || p.queues.Add(-1) > 0 || m.refs.Load() <= 0 && p.refs.Load() <= 0 {
		return
	}
	p.recharge()
}

// recharge counts a message that the user still holds.
func (m *Message) recharge() {
	m.charge.Reacquire()
	if m.queues.Load() > 0 { // it was queued meanwhile
		m.charge.Release()
	}
}

// detach copies a leased payload into a buffer of the message's own.
func (m *Message) detach() {
	m.leased = false
	n := m.Size()
	if m.posted { // it stays where it is
		n -= len(m.Data)
	}
	if n == 0 {
		return
	}
	b, err := m.home.core.Lend(n)
	var mem []byte
	if err != nil {
		mem = make([]byte, n) // there is no mapping: use the heap
	} else {
		m.buf = b
		mem = b.Bytes()
	}
	mem = m.crcs[0].move(mem, &m.Front)
	mem = m.crcs[1].move(mem, &m.Middle)
	if !m.posted {
		m.crcs[2].move(mem, &m.Data)
	}
}

// move copies *p to the beginning of mem and makes *p the copy, of which c is the crc then if it
// was before. It returns the rest of mem.
func (c *segmentCRC) move(mem []byte, p *[]byte) (rest []byte) {
	old := *p
	n := len(old)
	if n == 0 {
		return mem
	}
	*p = mem[:n:n]
	copy(*p, old)
	c.moved(old, *p)
	return mem[n:]
}

// poison overwrites a leased payload after its dispatch.
func (m *Message) poison() {
	if invariants.Enabled {
		invariants.Poison(m.Front)
		invariants.Poison(m.Middle)
		if !m.posted {
			invariants.Poison(m.Data)
		}
	}
}

// messageList is a FIFO of messages. Owner: the handler's core.
type messageList struct {
	first, last *Message
	n           int
	bytes       int64
}

func (l *messageList) push(m *Message) {
	m.next = nil
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
	l.n++
	l.bytes += int64(m.Size())
}

func (l *messageList) pop() *Message {
	m := l.first
	if m == nil {
		return nil
	}
	l.first = m.next
	if l.first == nil {
		l.last = nil
	}
	m.next = nil
	l.n--
	l.bytes -= int64(m.Size())
	return m
}

// prepend puts all of front before l, keeping the order, and empties front.
func (l *messageList) prepend(front *messageList) {
	if front.first == nil {
		return
	}
	front.last.next = l.first
	if l.last == nil {
		l.last = front.last
	}
	l.first = front.first
	l.n += front.n
	l.bytes += front.bytes
	*front = messageList{}
}

// Outcome is the fate of a message after Send.
type Outcome uint8

// The outcomes.
const (
	// OutcomeNone: it was not sent, or is still in a sending queue.
	OutcomeNone Outcome = iota
	// OutcomeWritten: it went into a write of a lossy session, which has no acks. It is unknown
	// whether the write ended, and whether the peer has read it.
	OutcomeWritten
	// OutcomeAcknowledged: the peer has acknowledged it, so that its dispatcher has got
	// it. On the connection to ourselves: it was dispatched.
	OutcomeAcknowledged
	// OutcomeDropped: the session or the connection ended before, or it was withdrawn.
	// It may have been written, and the peer may have read it.
	OutcomeDropped
	// OutcomeHandedOver: the process that has the session now has it, too, and sends it.
	OutcomeHandedOver
)

var outcomeNames = [...]string{
	OutcomeNone: "none", OutcomeWritten: "written", OutcomeAcknowledged: "acknowledged", OutcomeDropped: "dropped",
	OutcomeHandedOver: "handed over",
}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid"
}

// Outcome is the fate of the message since its last successful Send. Call it in Free, or once
// you know in another way that the messenger has released the message; not while another
// goroutine may send it.
func (m *Message) Outcome() Outcome { return m.outcome }

// Settle sets the fate of a message in a queue of the caller's own (Handler.Reserve). Call it
// before the release of the queue's reference.
func Settle(m *Message, o Outcome) { m.outcome = o }

// HandedOver says that another process has the session: messages that the handler still has at
// its close count as handed over. Any goroutine.
func (h *Handler) HandedOver() { h.handedOver.Store(true) }

// leftover is the outcome of messages that a handler still has at the end of its session.
func (h *Handler) leftover() Outcome {
	if h.handedOver.Load() {
		return OutcomeHandedOver
	}
	return OutcomeDropped
}

// Tracker follows one message through the sending queue of a handler. Its
// methods run on the handler's core, one at a time, and must not block.
type Tracker interface {
	// Taken: the core has the message, and no byte of it is written yet, so that its answer
	// comes later. A closed handler takes no message.
	Taken()
	// Left: the message is no longer in the queue. OutcomeWritten: it went into a write for the
	// first time, on a lossless session too. OutcomeDropped: it was withdrawn, or the
	// connection has ended, before a byte of it was written. OutcomeHandedOver: another process
	// has it. Left comes once, and last.
	Left(o Outcome)
}

// Withdraw drops a message that a Tracker has seen Taken and not yet Left: it
// releases the queue's reference, and the Tracker hears Left. On the core.
func (h *Handler) Withdraw(m *Message) {
	if h.queue.remove(m) {
		h.releaseMessage(m, OutcomeDropped)
	}
}

// Post has t run soon on the core that owns the handler by then (loop.Owner). Any goroutine.
func (h *Handler) Post(t *loop.Task) { h.core.Post(t) }

// Do has f run soon on the core that then owns the handler, after the messages of earlier
// calls of Send are queued. It does not wait. After the end of a core f still runs, see
// Core.Post. Any goroutine.
func (h *Handler) Do(f func(c *loop.Core)) {
	h.core.Post(&loop.Task{Run: func(c *loop.Core) {
		h.takeInbox()
		h.wake()
		f(c)
	}})
}

// left reports to the Tracker of m that it has left the queue. The caller does it last, as m
// may then be queued again.
func left(t Tracker, o Outcome) {
	if t != nil {
		t.Left(o)
	}
}
