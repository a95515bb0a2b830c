package dataplane

import (
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
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
// another one, after Retain.
type Message struct {
	Type          uint16 // application's message type
	Priority      uint16 // 0 means PriorityDefault
	Version       uint16 // encoding version of the payload
	CompatVersion uint16 // oldest decoder that works, 0: unknown
	TID           uint64 // application's transaction id
	DataOff       uint16 // hint for the receiver: offset of Data within a page

	Front  []byte
	Middle []byte
	Data   []byte

	// Free, if set, is called once when the messenger and all others have
	// released a message that was made for sending. It may run on a core: it
	// must be short and must not block.
	Free func(*Message)

	// Context is the sender's own, untouched by the messenger.
	Context any

	next *Message     // inbox, pending or sent list: one at a time
	refs atomic.Int32 // 0 stands for one reference: the zero Message is usable

	seq    uint64      // on the session that sent or received it
	charge int64       // bytes charged to the sending queue
	queued atomic.Bool // in the queue of a handler

	// Received messages only.
	home   *Core     // whose free list it returns to; nil: made by the user
	buf    *buffer   // payload memory, if it is the message's own
	leased bool      // payload lies in a receive buffer of the running dispatch
	taken  throttled // what was taken from the receiver's throttles
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

// Retain adds a reference. The first Retain of a received message must be
// called during its dispatch, on the dispatching goroutine: it moves a small
// payload out of the receive buffer. Later ones may come from any goroutine
// that holds a reference.
func (m *Message) Retain() {
	if m.leased {
		m.detach()
	}
	m.refs.Add(1)
}

// Release gives one reference back. Any goroutine may call it. After the last
// one the message and its payload must not be touched.
func (m *Message) Release() {
	if n := m.refs.Add(-1); n >= 0 {
		return
	} else if n < -1 {
		panic("ringmsgr: message released more often than retained")
	}
	m.taken.giveBack()
	if m.home == nil {
		if m.Free != nil {
			m.refs.Store(0) // it may use the message again
			m.Free(m)
		}
		return
	}
	m.home.returned(m)
}

// detach copies a leased payload into a buffer of the message's own.
func (m *Message) detach() {
	m.leased = false
	n := m.Size()
	if n == 0 {
		return
	}
	b, err := m.home.pool.get(n)
	var mem []byte
	if err != nil {
		mem = make([]byte, n) // no mapping to be had: the heap serves
	} else {
		m.buf = b
		mem = b.b
	}
	mem = appendTo(mem[:0], &m.Front)
	mem = appendTo(mem, &m.Middle)
	appendTo(mem, &m.Data)
}

// appendTo appends *seg to mem and makes *seg the copy.
func appendTo(mem []byte, seg *[]byte) []byte {
	at := len(mem)
	mem = append(mem, *seg...)
	if len(*seg) > 0 {
		*seg = mem[at:len(mem):len(mem)]
	}
	return mem
}

// poison overwrites a leased payload whose dispatch is over.
func (m *Message) poison() {
	if invariants.Enabled {
		invariants.Poison(m.Front)
		invariants.Poison(m.Middle)
		invariants.Poison(m.Data)
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
