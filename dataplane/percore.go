package dataplane

import (
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/invariants"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// perCore is the state that the handlers of one core share. Owner: the core.
type perCore struct {
	core     *loop.Core // written once; a release on another goroutine reads it
	messages *Message   // free received messages
	// Values under construction: here they do not escape to the heap each time.
	flush    flush                         // the write
	scratch  [8]byte                       // the payload of a control frame
	header   [frame.MessageHeaderSize]byte // of a message
	received frame.Frame                   // that was checked
	guess    guess                         // memory for the next frame of the socket that is read
	pace     *pace                         // of the connection that was opened last: most have the same
	timeNext uint64                        // number of the message whose dispatch is timed next
	holders  invariants.Holders            // of messages that were received here; empty in normal builds
	counts   Counts
	// toldStopped is when a connection was last logged that received messages stop; 0: never.
	toldStopped time.Duration
}

var handlerLocal loop.Local[perCore]

// localOf is the perCore of c. A handler keeps it while it has a socket, so that
// it is not looked up for each message.
func localOf(c *loop.Core) *perCore {
	l := handlerLocal.Of(c)
	if l.core == nil {
		l.core = c
	}
	return l
}

// paceOf is the pace of a connection, which connections with the same options share.
func (l *perCore) paceOf(o *OpenOptions) *pace {
	if p := paceOf(o); l.pace == nil || *l.pace != p {
		kept := p // so that a pace that is reached already costs nothing
		l.pace = &kept
	}
	return l.pace
}

// lend makes a received message with one reference.
func (l *perCore) lend() *Message {
	m := l.messages
	if m == nil {
		m = &Message{home: l}
		m.loan.Of = (*lent)(m)
		return m
	}
	l.messages = m.next
	m.next = nil
	return m
}

// recycle takes a received message back, on the core.
func (l *perCore) recycle(m *Message) {
	if invariants.Holding {
		l.holders.Drop(m)
	}
	if m.buf != nil {
		l.core.TakeBack(m.buf)
	}
	if m.dataBuf != nil {
		l.core.TakeBack(m.dataBuf)
	}
	*m = Message{home: l, next: l.messages, loan: loop.Loan{Of: (*lent)(m)}}
	l.messages = m
}

// lent is a received message that was retained.
type lent Message

// Returned implements loop.Returner.
func (m *lent) Returned(*loop.Core) { m.home.recycle((*Message)(m)) }
