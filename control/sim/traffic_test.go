//go:build !race

package sim_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// channel is a connection that a node made to send on.
type channel struct {
	from, to *node
	toLife   int
	conn     *control.Conn
	w        *watch
	lanes    []*lane
}

// lane is one goroutine that sends on a channel: its messages are numbered
// from 1, and keep their order within a priority.
type lane struct {
	ch     *channel
	stream uint64
	next   uint64
	// lost is the highest number that an event has declared lost: everything
	// up to it may be missing at the peer, nothing above.
	lost    uint64
	waiting *blockedSend
	calls   map[uint64]*call // by number
}

// blockedSend is a SendContext or a Call under way.
type blockedSend struct {
	p      *parcel
	cancel func()
}

// parcel is a message that was given to Send.
type parcel struct {
	msg     control.Message
	n       *node
	process int
	lane    *lane
	number  uint64
	call    *call // nil: it is none
	refused bool  // Send returned an error: the message is still ours
	freed   bool
}

// simBytes are random bytes; payloads are parts of them.
var simBytes = func() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 300<<10)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

// simPayload is a part of simBytes that follows from a message's identity.
func simPayload(stream, number uint64, size int) []byte {
	at := int((stream*7919 + number*104_729) % uint64(len(simBytes)-size))
	return simBytes[at : at+size : at+size]
}

const simFront = 24 // stream, number, size of the middle, size of the data; of a reply also stream and number of the request

// The types of messages; 9 is liveAnswer.
const (
	simMessage = 7 // may be answered by one of simLast
	simLast    = 8
	simRequest = 10
	simReply   = 11
)

// parcel makes the next message of a lane.
func (l *lane) parcel(middle, data int, typ uint16) *parcel {
	w := l.ch.from.w
	p := &parcel{n: l.ch.from, process: l.ch.from.process, lane: l, number: l.next + 1}
	front := make([]byte, simFront)
	binary.LittleEndian.PutUint64(front, l.stream)
	binary.LittleEndian.PutUint64(front[8:], p.number)
	binary.LittleEndian.PutUint32(front[16:], uint32(middle))
	binary.LittleEndian.PutUint32(front[20:], uint32(data))
	m := &p.msg
	m.Type, m.TID, m.Front = typ, p.number, front
	m.Middle, m.Data = simPayload(l.stream, p.number+1, middle), simPayload(l.stream, p.number, data)
	w.largest = max(w.largest, int64(m.Size()), loop.MinShared)
	if w.plan.priorities {
		m.Priority = []uint16{0, dataplane.PriorityLow, dataplane.PriorityHigh, dataplane.PriorityHighest}[w.rng.IntN(4)]
	}
	m.Context, m.Free = p, parcelFreed
	return p
}

// channelTo is a channel that n has to another node, or a new one.
func (n *node) channelTo(to *node) *channel {
	w := n.w
	var open []*channel
	kept := n.channels[:0]
	for _, ch := range n.channels {
		if !ch.over() {
			kept = append(kept, ch)
			if ch.to == to && ch.toLife == to.life {
				open = append(open, ch)
			}
		}
	}
	n.channels = kept
	// Only connections that their server does not know by address can be
	// several.
	most := 1
	if !w.plan.kind.lossless && !w.foe.calm() {
		most = 3
	}
	if k := len(open); k > 0 && (k >= most || w.rng.IntN(4) != 0) {
		return open[w.rng.IntN(k)]
	}
	var opts []control.ConnectOption
	if len(open) > 0 {
		opts = append(opts, control.Anonymous())
	}
	if w.rng.IntN(3) == 0 {
		cores := n.cores()
		opts = append(opts, control.OnCore(cores[w.rng.IntN(len(cores))].ID()))
	}
	conn, err := n.dial(to, append(opts, w.foe.wants(to)...)...)
	if err != nil {
		w.fail("connect: %v", err)
		return nil
	}
	ch := n.channel(conn, to, to.life, 1+w.rng.IntN(w.plan.lanes))
	return ch
}

// channel makes one on a connection.
func (n *node) channel(c *control.Conn, to *node, toLife, lanes int) *channel {
	w := n.w
	ch := &channel{from: n, to: to, toLife: toLife, conn: c, w: n.watch(c)}
	for range lanes {
		l := &lane{ch: ch, stream: uint64(len(w.lanes) + 1), calls: make(map[uint64]*call)}
		w.lanes[l.stream] = l
		ch.lanes = append(ch.lanes, l)
	}
	n.channels = append(n.channels, ch)
	return ch
}

// answers is the channel for the messages that n itself sends on a connection that may be an
// accepted one.
func (n *node) answers(c *control.Conn, to *node, toLife int) *channel {
	for _, ch := range n.channels {
		if ch.conn == c {
			return ch
		}
	}
	return n.channel(c, to, toLife, 1)
}

// over says that nothing more can come of the channel.
func (ch *channel) over() bool { return ch.w.down || ch.w.resets > 0 }

// sizes of a message.
func (w *world) sizes() (middle, data int) {
	switch w.rng.IntN(20) {
	case 0:
		return w.rng.IntN(w.plan.large), w.rng.IntN(w.plan.large)
	case 1, 2:
		return 0, w.rng.IntN(w.plan.large)
	case 3:
		return 0, 0
	}
	return 0, w.rng.IntN(300)
}

// free says that a lane can send: its goroutine does not wait, and its process lives.
func (l *lane) free() bool {
	n := l.ch.from
	return l.waiting == nil && n.m != nil && !n.ending && n.life == l.ch.w.life
}

// send gives one message to Send, or with wait to SendContext, on a lane.
func (l *lane) send(middle, data int, wait bool, typ uint16) {
	if !l.free() {
		return
	}
	p := l.parcel(middle, data, typ)
	if wait {
		l.sendContext(p)
		return
	}
	l.sent(p, l.ch.conn.Send(&p.msg))
}

// sent notes the answer of Send.
func (l *lane) sent(p *parcel, err error) {
	n := l.ch.from
	switch {
	case err == nil:
		n.accepted++
		l.next++
		return
	case errors.Is(err, control.ErrQueueFull):
		n.w.cover.QueueFull++
		if n.w.plan.queueMessages == 0 && n.w.plan.queueBytes == 0 {
			n.w.fail("node %d: %v without a bound", n.id, err)
		}
	case errors.Is(err, control.ErrTooManyCalls) && p.call != nil:
		n.checkFull(l.ch, p)
	case errors.Is(err, control.ErrSessionLost) && p.msg.Type == simReply:
	case errors.Is(err, control.ErrClosed):
		l.ch.w.refused = true
	case errors.Is(err, context.Canceled):
		n.w.cover.Canceled++
	default:
		n.w.fail("node %d: send: %v", n.id, err)
	}
	p.refused = true
	delete(l.calls, p.number)
	if p.freed {
		n.w.fail("node %d: message %d was released, and then refused: %v", n.id, p.number, err)
	}
}

func (l *lane) sendContext(p *parcel) {
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	l.blocked(p, cancel, func() { err = l.ch.conn.SendContext(ctx, &p.msg) }, func() { l.sent(p, err) })
}

// blocked has a lane wait for a call.
func (l *lane) blocked(p *parcel, cancel func(), call, then func()) {
	w := p.n.w
	b := &blockedSend{p: p, cancel: cancel}
	l.waiting = b
	w.apart(call, func() {
		b.cancel()
		l.waiting = nil
		w.net.Note("node %d: blocked send %d ends", p.n.id, p.number)
		w.cover.Blocked++
		then()
	})
}

// parcelFreed is the end of a message that was sent.
func parcelFreed(m *control.Message) {
	p := m.Context.(*parcel)
	w := p.n.w
	switch {
	case p.freed:
		w.fail("node %d: message %d was released twice", p.n.id, p.number)
	case p.refused:
		w.fail("node %d: message %d was released although Send refused it", p.n.id, p.number)
	}
	p.freed = true
	if p.process != p.n.process {
		w.fail("node %d: message %d outlived its process", p.n.id, p.number)
		return
	}
	p.n.freed++
	l := p.lane
	if m.Outcome() == dataplane.OutcomeAcknowledged && !l.arrived(p.number) {
		w.fail("node %d: message %d of stream %d is acknowledged, and has not arrived", p.n.id, p.number, l.stream)
	}
	if w.plan.kind.lossless && !l.arrived(p.number) && !l.ch.over() && !p.n.ending {
		// Only a reset can excuse that. Its event follows.
		w.doubts = append(w.doubts, doubt{l, p.number, w.net.Now()})
	}
}

// arrived says whether the peer has got a message.
func (l *lane) arrived(number uint64) bool {
	if l.ch.to.life != l.ch.toLife {
		return true // nobody can tell
	}
	in := l.ch.to.streams[l.stream]
	return in != nil && number < uint64(len(in.by)) && in.by[number] != nil
}
