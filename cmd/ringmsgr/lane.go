package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/control"
)

// lane is one connection of send: it keeps depth messages under way and checks
// the echoes. Message n lives in slot n modulo depth; a slot is used again when
// its echo has come and the messenger has released the message.
type lane struct {
	id      int
	now     func() time.Time
	pattern pattern
	size    int         // of a payload
	ended   func(*lane) // called once, when the lane has finished or failed

	mu    sync.Mutex
	conn  *control.Conn
	slots []slot
	total uint64 // messages to send
	next  uint64 // number of the next one
	got   uint64 // echoes, which come in order
	full  bool   // the sending queue had no room: a goroutine waits for it
	over  bool
	err   error
	times *latency.Histogram

	duplicates, losses, corrupt uint64
}

type slot struct {
	msg  control.Message
	used bool // the messenger has it
	sent time.Time
	head [headSize]byte
}

// headSize is the front of every message: number of the lane, of the message.
const headSize = 16

// What an echo can be beside right.
var (
	errCorrupt   = errors.New("an echo differs from what was sent")
	errDuplicate = errors.New("an echo came twice")
	errLost      = errors.New("an echo is missing")
)

func newLane(id int, total uint64, depth, size int, p pattern, now func() time.Time, ended func(*lane)) *lane {
	l := &lane{id: id, now: now, pattern: p, size: size, ended: ended, total: total, slots: make([]slot, depth), times: latency.New()}
	for i := range l.slots {
		s := &l.slots[i]
		s.msg.Type, s.msg.Front, s.msg.Context = ping, s.head[:], s
		s.msg.Free = l.freed
	}
	return l
}

// start begins to send on c.
func (l *lane) start(c *control.Conn) {
	c.SetUserData(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = c
	l.pump(l.now())
	if l.total == 0 {
		l.end(nil)
	}
}

// pump sends as much as the depth allows. The lock is held.
func (l *lane) pump(now time.Time) {
	depth := uint64(len(l.slots))
	for !l.over && !l.full && l.next < l.total && l.next-l.got < depth {
		s := &l.slots[l.next%depth]
		if s.used {
			return // freed goes on
		}
		s.used, s.sent = true, now
		binary.LittleEndian.PutUint64(s.head[:], uint64(l.id))
		binary.LittleEndian.PutUint64(s.head[8:], l.next)
		s.msg.Data = l.pattern.payload(uint64(l.id), l.next, l.size)
		s.msg.TID = l.next
		err := l.conn.Send(&s.msg)
		if errors.Is(err, control.ErrQueueFull) {
			room := l.conn.Room()
			if err = l.conn.Send(&s.msg); errors.Is(err, control.ErrQueueFull) {
				s.used, l.full = false, true
				go l.resume(room)
				return
			}
		}
		if err != nil {
			l.end(err)
			return
		}
		l.next++
	}
}

// resume goes on when there is room.
func (l *lane) resume(room <-chan struct{}) {
	<-room
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = false
	l.pump(l.now())
}

// stop sends nothing more: the lane ends with the echoes that are due.
func (l *lane) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = l.next
	if l.got == l.total {
		l.end(nil)
	}
}

// freed gets a message back from the messenger.
func (l *lane) freed(m *control.Message) {
	s, _ := m.Context.(*slot)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.used = false
	// The usual case is that the echo is still under way, and there is nothing
	// to send before it has come.
	if l.next-l.got < uint64(len(l.slots)) {
		l.pump(l.now())
	}
}

// echo takes an echo, on the core of the connection.
func (l *lane) echo(m *control.Message) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || m.Type != ping {
		return
	}
	switch {
	case m.TID < l.got:
		l.duplicates++
		l.end(fmt.Errorf("%w: number %d, expected %d", errDuplicate, m.TID, l.got))
		return
	case m.TID > l.got:
		l.losses += m.TID - l.got
		l.end(fmt.Errorf("%w: number %d came, expected %d", errLost, m.TID, l.got))
		return
	case !l.intact(m):
		l.corrupt++
		l.end(fmt.Errorf("%w: number %d of %d bytes", errCorrupt, m.TID, m.Size()))
		return
	}
	l.times.Record(now.Sub(l.slots[l.got%uint64(len(l.slots))].sent))
	l.got++
	if l.got == l.total {
		l.end(nil)
		return
	}
	l.pump(now)
}

// intact checks every byte of the echo that is due.
func (l *lane) intact(m *control.Message) bool {
	return len(m.Front) == headSize && len(m.Middle) == 0 &&
		binary.LittleEndian.Uint64(m.Front) == uint64(l.id) && binary.LittleEndian.Uint64(m.Front[8:]) == l.got &&
		bytes.Equal(m.Data, l.pattern.payload(uint64(l.id), l.got, l.size))
}

// fail ends the lane from outside.
func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err)
}

// end is the last thing that happens. The lock is held.
func (l *lane) end(err error) {
	if l.over {
		return
	}
	l.over, l.err = true, err
	if err != nil && l.losses == 0 {
		l.losses = l.next - l.got - min(l.corrupt, l.next-l.got)
	}
	l.ended(l)
}

// progress is how many echoes have come.
func (l *lane) progress() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got
}
