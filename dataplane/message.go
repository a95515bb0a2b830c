package dataplane

import (
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Priorities of messages (msgr2.md, section 6, MESSAGE).
const (
	PriorityLow     uint16 = 64
	PriorityDefault uint16 = 127
	PriorityHigh    uint16 = 196
	PriorityHighest uint16 = 255
)

// Message is one application message: a typed header and up to three payload
// segments.
//
// A message to send is made with NewMessage (or a composite literal) by any
// goroutine. Send takes over one reference: the payload must not be changed
// until the messenger has let go of it, which is when Release brings the count
// to zero and Free runs. That is after the bytes were written on a lossy
// session, after the peer acknowledged them on a lossless one.
//
// A received message belongs to the messenger. It is valid during the dispatch
// call; who wants it longer calls Retain in that call, and Release later from
// any goroutine. A received message can be sent, to its own connection or to
// another one, after Retain: then it counts against that connection's sending
// queue, and no longer against the receive budget. Who changes bytes of its payload
// before that calls Changed.
type Message struct {
	Type          uint16 // application's message type
	Priority      uint16 // 0 means PriorityDefault
	Version       uint16 // encoding version of the payload
	CompatVersion uint16 // oldest decoder that works, 0: unknown
	TID           uint64 // application's transaction id
	DataOff       uint16 // hint for the receiver: offset of Data within a page

	Front  []byte
	Middle []byte
	// Data of a received message begins on a page, an address that 4096 divides, if it
	// has at least as many bytes as Config.LargeFrom, or as OpenOptions.AlignFrom if
	// that is less: it can be written with direct I/O as it is. It then lies in a
	// buffer of its own from the beginning, and Retain copies nothing. Not so where the
	// peer has compressed it, where a peer of msgr1 has set DataOff, or on the connection
	// to ourselves, which brings what was sent; and where it lies in memory that the user has
	// posted (Posted), it begins where that does.
	Data []byte

	// Free, if set, is called once when the messenger and all others have
	// released a message that was made for sending. It may run on a core: it
	// must be short and must not block. Outcome says what became of the message.
	Free func(*Message)

	// Context is the sender's own, untouched by the messenger; of a received message,
	// that of its dispatchers.
	Context any

	next *Message     // inbox, pending or sent list: one at a time
	prev *Message     // of its class, in an outQueue only
	refs atomic.Int32 // 0 stands for one reference: the zero Message is usable

	class   outClass      // in an outQueue only
	since   time.Duration // of timing, on the clock of the plane
	timing  timing        // untimed in most
	outcome Outcome       // of the last Send; written by the core that lets go of it

	seq         uint64      // on the session that sent or received it
	queuedBytes int64       // charged to the sending queue
	queued      atomic.Bool // in the queue of a handler
	elsewhere   bool        // its memory counts elsewhere (BoundElsewhere)
	tracker     Tracker     // while it is queued and was not written; nil: nobody follows it

	// Received messages only.
	home    *perCore     // whose free list it returns to; nil: made by the user
	loan    loop.Loan    // how it gets there
	buf     *loop.Buffer // payload memory, if it is the message's own
	dataBuf *loop.Buffer // that of Data, if it has one of its own
	crcs    segmentCRCs  // of the payload as it came; a clone's as well
	leased  bool         // payload, but for posted data, lies in a buffer of the running dispatch
	posted  bool         // Data lies in memory that the user has posted
	charge  loop.Charge  // what it holds of the receiver's budget
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

// BoundElsewhere says whether the memory of a message to send counts against another
// budget until it is released, such as that for reads of files (Config.FileBytes): sending
// queues then take it whatever their bounds, and do not count its bytes. Whoever has made
// the message calls it, before it is sent.
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

// sole says that the caller, on the core of l, has the only reference to a message
// that was received there: nobody else knows of it any more.
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

// Clone returns a message to send with the header and the payload of m, which
// it keeps until it is released itself: what was received once can be sent to
// several peers without a copy, and counts against their sending queues. (A
// message of your own that refers to the payload of a received one, and releases
// that in Free, leaves it in the receive budget: at the bound nothing is read
// until it is sent and acknowledged.) As for Retain, the first call for a
// received message belongs into its dispatch. Neither message may be changed
// while the other lives, but for the fields of the header.
func (m *Message) Clone() *Message {
	m.Retain()
	return &Message{
		Type: m.Type, Priority: m.Priority, Version: m.Version, CompatVersion: m.CompatVersion, TID: m.TID, DataOff: m.DataOff,
		Front: m.Front, Middle: m.Middle, Data: m.Data, crcs: m.crcs, of: m.payload(), Free: func(*Message) { m.Release() },
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

// dequeue says that a sending queue has let go of it. What the user goes on to
// hold counts against the receive budget again.
func (m *Message) dequeue() {
	if !m.charge.Bounded() || m.queues.Add(-1) > 0 || m.refs.Load() <= 0 {
		return
	}
	m.recharge()
}

// recharge counts what the user goes on to hold.
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

// poison overwrites a leased payload whose dispatch is over.
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
