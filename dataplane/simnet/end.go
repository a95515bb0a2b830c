package simnet

import (
	"container/heap"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// end is one end of a connection.
type end struct {
	id            int
	host          *Host
	drv           *driver
	peer          *end // nil once the other end is gone or never was
	local, remote netip.AddrPort

	// Receiving.
	rx      stream
	rxErr   unix.Errno // found behind rx
	rxEnd   bool       // end of the stream behind rx
	armed   bool       // Ready
	user    uint64     // of Ready
	readyOp uring.Op
	recvOp  uring.Op // of Receive, 0: none is armed
	closed  bool
	silent  bool // gone without a word
	lost    bool // the network has forgotten the connection

	connUser uint64   // of Connect
	connOp   uring.Op // of Connect, 0: none is under way

	// Sending: what the application wrote and the network has not taken, and
	// what travels.
	tx       stream
	again    stream // lost on the way, before tx
	txEnd    bool   // end of the stream behind tx
	flying   int
	landed   uint64        // bytes that the other end has
	lastAt   time.Duration // arrival of the last segment, so that none overtakes
	sending  bool          // a Send waits for room
	sendUser uint64
	sendSize int
	queued   stream // bytes of that Send that did not fit
	unheard  bool   // what was sent to a dead machine is sent again, for ever

	writeEnded bool // by EndWriting: the application sends no more
	abrupt     bool // by Reset: what follows is a close
}

// room is what the direction takes now.
func (e *end) room() int {
	held := e.again.size + e.tx.size + e.flying
	if e.peer != nil {
		held += e.peer.rx.size
	}
	return max(e.host.net.opt.Window-held, 0)
}

// blocked says whether nothing travels from e now.
func (e *end) blocked() bool {
	return e.peer == nil || e.lost || e.host.net.cut[[2]*Host{e.host, e.peer.host}]
}

// pump lets what was written travel.
func (e *end) pump() {
	n := e.host.net
	if e.again.size > 0 && e.flying == 0 && !e.blocked() {
		for e.tx.size > 0 {
			e.again.push(e.tx.take(e.tx.size))
		}
		e.tx, e.again = e.again, stream{}
	}
	for !e.blocked() && e.again.size == 0 && (e.tx.size > 0 || e.txEnd && e.flying == 0) {
		if e.tx.size == 0 {
			e.txEnd = false
			e.fly(nil, true)
			return
		}
		// Every other piece is a full one, so that cuts fall anywhere, but
		// bytes do not dissolve into crumbs.
		size := min(e.tx.size, n.opt.Segment)
		if !n.opt.Whole && n.rng.IntN(2) == 0 {
			size = 1 + n.rng.IntN(size)
		}
		seg := e.tx.take(size)
		if n.opt.ResetEvery > 0 && n.rng.IntN(n.opt.ResetEvery) == 0 {
			n.Note("reset %d in flight", e.id)
			e.reset()
			return
		}
		e.fly(seg, false)
	}
}

// fly sends one segment on its way.
func (e *end) fly(seg []byte, last bool) {
	n := e.host.net
	e.flying += len(seg)
	e.lastAt = max(n.Now()+n.delay(), e.lastAt)
	heap.Push(&n.events, &event{at: e.lastAt, seq: n.number(), from: e, to: e.peer, seg: seg, last: last})
}

// land is the arrival of a segment.
func (e *end) land(peer *end, seg []byte, last bool) {
	n := e.host.net
	e.flying -= len(seg)
	if e.peer != peer {
		return
	}
	if peer.closed {
		switch {
		case peer.silent && peer.host.dead:
			e.unheard = true
		case len(seg) > 0 || peer.silent:
			e.reset()
		}
		return
	}
	if e.blocked() || e.again.size > 0 {
		// Lost on the way, or of no use without what was: it comes again when
		// the way is free and everything else has landed.
		e.again.push(seg)
		e.txEnd = e.txEnd || last
		e.pump()
		return
	}
	e.landed += uint64(len(seg))
	n.noteLand(e.id, peer.id, len(seg), last)
	peer.rx.push(seg)
	peer.rxEnd = peer.rxEnd || last
	peer.edge()
	if e.txEnd && e.tx.size == 0 {
		e.pump()
	}
}

// edge tells the owner that there is something to read.
func (e *end) edge() {
	if e.armed {
		e.drv.ready(e)
	}
	e.flow()
}

// drained lets the sender go on after the application read.
func (e *end) drained() {
	if p := e.peer; p != nil && (p.sending || p.tx.size > 0 || p.txEnd) {
		p.refill()
	}
}

// refill moves what waits for room into the network.
func (e *end) refill() {
	for room := e.room(); room > 0 && e.queued.size > 0; {
		p := e.queued.take(room)
		room -= len(p)
		e.tx.push(p)
	}
	e.pump()
	if e.sending && e.queued.size == 0 {
		e.sending = false
		e.drv.finishSend(e, int32(e.sendSize))
	}
}

// write takes the bytes of a Send, which it keeps; it returns false if some
// have to wait.
func (e *end) write(p []byte) bool {
	k := min(e.room(), len(p))
	e.tx.push(p[:k:k])
	e.queued.push(p[k:])
	e.pump()
	return e.queued.size == 0
}

// finish is an orderly close of our direction.
func (e *end) finish() {
	e.txEnd = true
	e.pump()
}

// fail ends the end: reads and writes find errno.
func (e *end) fail(errno unix.Errno) {
	if e.closed || e.rxErr != 0 {
		return
	}
	e.rx.clear()
	e.again.clear()
	e.tx.clear()
	e.queued.clear()
	e.rxErr = errno
	if e.sending {
		e.sending = false
		e.drv.finishSend(e, -int32(errno))
	}
	e.edge()
}

// reset breaks the connection at both ends.
func (e *end) reset() {
	e.host.net.counts.Resets++
	p := e.peer
	e.peer = nil
	e.fail(unix.ECONNRESET)
	if p != nil && p.peer == e {
		p.peer = nil
		p.fail(unix.ECONNRESET)
	}
}

// forget has the network drop everything that the two ends send from now on.
func (e *end) forget() {
	e.lost = true
	if e.peer != nil {
		e.peer.lost = true
	}
}

// earlyEvery is in how many pieces a receive ends by itself, on average: with bytes, as
// when a completion queue is full, or for want of buffers.
const earlyEvery = 40

// receive arms a receive into buffers.
func (e *end) receive(user uint64) (uring.Op, error) {
	if e.host.net.opt.ReceiveBuffers == 0 {
		return 0, fmt.Errorf("simulated network: multishot receive: %w", errors.ErrUnsupported)
	}
	op := e.drv.op()
	e.user, e.recvOp = user, op
	e.flow()
	return op, nil
}

// Release implements uring.Driver.
func (d *driver) Release(b uring.Buffer) {
	d.lent -= d.held[b]
	delete(d.held, b)
}

// lend names the buffer of n bytes.
func (d *driver) lend(n int) uring.Buffer {
	d.lent += n
	d.buffers++
	d.held[d.buffers] = n
	return d.buffers
}

// flow hands what has arrived to the receive that is armed.
func (e *end) flow() {
	if e.recvOp == 0 {
		return
	}
	n, d := e.host.net, e.drv
	for e.recvOp != 0 && e.rx.size > 0 {
		room := n.opt.ReceiveBuffers - d.lent
		chance := n.rng.IntN(2 * earlyEvery)
		if room <= 0 || chance == 0 {
			d.stats.NoBuffers++
			e.endReceive(-int32(unix.ENOBUFS))
			break
		}
		p := e.rx.take(min(room, e.rx.size))
		c := uring.Completion{Kind: uring.KindReceive, User: e.user, Op: e.recvOp, Res: int32(len(p)), Data: p, Buf: d.lend(len(p)), Flags: uring.More}
		if chance == 1 {
			c.Flags, e.recvOp = 0, 0
		}
		d.push(c)
	}
	switch {
	case e.recvOp == 0 || e.rx.size > 0:
	case e.rxErr != 0:
		e.endReceive(-int32(e.rxErr))
	case e.rxEnd:
		e.endReceive(0)
	}
	e.drained()
}

// endReceive completes the receive that is armed.
func (e *end) endReceive(res int32) {
	e.drv.push(uring.Completion{Kind: uring.KindReceive, User: e.user, Op: e.recvOp, Res: res})
	e.recvOp = 0
}

// stream is a queue of bytes, in the pieces in which they came: bytes are
// copied when they are written and when they are read, never between.
type stream struct {
	pieces [][]byte
	head   int // first piece that is not taken
	size   int
}

// push appends p, which it keeps.
func (s *stream) push(p []byte) {
	if len(p) == 0 {
		return
	}
	if s.head == len(s.pieces) {
		s.pieces, s.head = s.pieces[:0], 0
	}
	s.pieces = append(s.pieces, p)
	s.size += len(p)
}

// take removes at most n bytes from the front, in one piece.
func (s *stream) take(n int) []byte {
	if s.size == 0 || n <= 0 {
		return nil
	}
	p := s.pieces[s.head]
	if n < len(p) {
		s.pieces[s.head] = p[n:]
		s.size -= n
		return p[:n:n]
	}
	s.pieces[s.head] = nil
	s.head++
	s.size -= len(p)
	return p
}

// read moves bytes into p and returns how many.
func (s *stream) read(p []byte) (n int) {
	for n < len(p) && s.size > 0 {
		n += copy(p[n:], s.take(len(p)-n))
	}
	return n
}

// clear drops everything.
func (s *stream) clear() { *s = stream{} }
