package control

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// lentMessage is a message of a core, with a buffer of it. Once released it goes back to
// the core by itself, from whatever goroutine, and is used again. Owner: who has the
// message, then the core.
type lentMessage struct {
	msg  Message
	core *Core
	buf  *loop.Buffer // nil: none
	loan loop.Loan
	next *lentMessage // in Core.spare
}

// NewMessage makes a message to send, whose Data is n bytes of a buffer of this core, not
// zeroed; from 4 KiB on it begins on a page. Both come back to the core when the message is
// released, and are used again: nothing is allocated. Free is the core's and must not be
// set. It fails only if the kernel refuses a mapping. On the core.
func (c *Core) NewMessage(typ uint16, n int) (*Message, error) {
	if n == 0 {
		return c.lend(typ, nil, nil), nil
	}
	b, err := c.c.Lend(n)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return c.lend(typ, b, b.Bytes()[:n:n]), nil
}

// Message makes a message to send of what ReadReply or ReadBuffer has read, without a copy,
// as Core.NewMessage does: the buffer goes back to its core when the message is released.
// Until then it counts against dataplane.Config.FileBytes, and not against the bounds of the
// sending queue: Send never fails with ErrQueueFull. Who
// knows the crc of Data, as it was stored with it, says so (Message.SetDataCRC). It is called
// in Done, once. On the core.
func (op *FileOp) Message(typ uint16) *Message {
	op.kept = true
	m := op.file.core.lend(typ, op.op.TakeBuffer(), op.Data)
	m.BoundElsewhere(true)
	return m
}

// lend makes a message of what b has, which may be nil.
func (c *Core) lend(typ uint16, b *loop.Buffer, data []byte) *Message {
	l := c.spare
	if l == nil {
		l = &lentMessage{core: c}
		l.loan.Of = l
		l.msg.Free = func(*Message) { l.core.c.Return(&l.loan) }
	} else {
		c.spare, l.next = l.next, nil
	}
	l.buf, l.msg.Type, l.msg.Data = b, typ, data
	return &l.msg
}

// Returned takes the message back, on its core or behind its end.
func (l *lentMessage) Returned(c *loop.Core) {
	if l.buf != nil {
		c.TakeBack(l.buf)
		l.buf = nil
	}
	m := &l.msg
	m.Priority, m.Version, m.CompatVersion, m.TID, m.DataOff = 0, 0, 0, 0, 0
	m.Front, m.Middle, m.Data, m.Context = nil, nil, nil, nil
	m.BoundElsewhere(false)
	m.Changed() // the buffer may come again with other bytes
	l.next, l.core.spare = l.core.spare, l
}
