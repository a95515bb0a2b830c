package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	scratchSize = 256 << 10 // received bytes pass through here, in the cache
	eventsMax   = 128
	pollEach    = 20 * time.Millisecond // longest sleep
)

// StallAfter is the time without a reply after which a client fails with ErrStalled.
const StallAfter = 10 * time.Second

// ErrStalled says that requests were not answered for ten seconds.
var ErrStalled = errors.New("server does not answer")

// inbound is the receiver of one connection.
type inbound interface {
	// take consumes received bytes, which it may change, and calls done for
	// each reply that they complete.
	take(p []byte, now time.Duration, done func(now time.Duration)) error
}

// conn is one connection.
type conn struct {
	*socket
	in  inbound
	out sender

	issued      []time.Duration // when each open request was issued, a ring
	first, open int
	replies     int // of this slice, up to the depth
}

// Load is a set of connections to one server.
type Load struct {
	sockets
	opt     Options
	nonce   uint32 // of the first connection
	t       *template
	conns   []*conn
	active  []*conn // carry requests in this slice
	scratch []byte

	current *conn                   // its bytes are being read
	ended   func(now time.Duration) // a reply of current is complete
	pace    pace                    // when requests are issued
}

// Open connects and, unless o.Raw, runs the handshake on every connection.
func Open(ctx context.Context, o Options) (*Load, error) {
	t, err := newTemplate(o.Size, o.Msgr1)
	if err != nil {
		return nil, err
	}
	l := &Load{opt: o, nonce: rand.Uint32(), t: t, scratch: make([]byte, scratchSize)}
	if l.sockets, err = newSockets(o.PID, l.happened); err != nil {
		return nil, err
	}
	l.ended = l.answer
	for i := range o.Conns {
		if err := l.add(ctx, i); err != nil {
			l.Close()
			return nil, err
		}
	}
	runtime.GC() // the garbage of the handshakes, before the measurement
	return l, nil
}

func (l *Load) add(ctx context.Context, i int) error {
	s, enc, dec, err := l.dial(ctx, l.opt, l.nonce+uint32(i))
	if err != nil {
		return err
	}
	tid := uint64(i)<<40 + 1
	c := &conn{socket: s, issued: make([]time.Duration, l.opt.Depth), out: sender{t: l.t, raw: l.opt.Raw, tid: tid}}
	if l.opt.Secure {
		l.t.wire = enc.FrameSize(headerLen, 0, 0, l.opt.Size)
		c.in = &opener{t: l.t, frames: frames{dec: dec}, order: order{tid: tid}}
		c.out.enc = enc
	} else {
		in := newReceiver(l.t, l.opt.Raw, tid)
		c.in = &in
	}
	l.conns = append(l.conns, c)
	return nil
}

// Run loads the server for one slice and waits until every request is
// answered. The calling goroutine should be locked to its thread. After an
// error the Load can only be closed.
func (l *Load) Run(s Slice) (Result, error) {
	var err error
	if l.active, err = Spread(s, l.conns); err != nil {
		return Result{}, err
	}
	l.pace = newPace(s.Rate, l.active, l.opt.Depth)
	res, err := l.meter.Run(s, l, uint64(len(l.active)*l.opt.Depth))
	res.PerReply = l.t.wire
	return res, err
}

// Fill issues the first requests of every connection.
func (l *Load) Fill() error {
	l.begin(len(l.active))
	l.pace.due = l.lastReply
	for _, c := range l.active {
		c.replies = 0
		if l.pace.on() {
			continue // Turn issues them
		}
		now := l.meter.now()
		for range l.opt.Depth {
			l.issue(c, now)
		}
		if err := l.flush(c); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements Traffic: requests that were not begun are taken back.
func (l *Load) Stop() {
	l.stopping = true
	for _, c := range l.active {
		n := c.out.withdraw()
		c.open -= n
		l.open -= n
	}
}

func (l *Load) issue(c *conn, now time.Duration) {
	c.issued[(c.first+c.open)%len(c.issued)] = now
	c.open++
	l.open++
	c.out.request()
}

// answer counts a reply of the current connection and issues the next request.
func (l *Load) answer(now time.Duration) {
	c := l.current
	issued := c.issued[c.first]
	c.first = (c.first + 1) % len(c.issued)
	c.open--
	l.answered(now, issued)
	if c.replies < l.opt.Depth {
		if c.replies++; c.replies == l.opt.Depth {
			l.cold--
		}
	}
	switch {
	case l.stopping:
	case l.pace.on():
		l.pace.release(c)
	default:
		l.issue(c, now)
	}
}

// Turn waits for events, but no longer than to the next request, and handles them.
func (l *Load) Turn() error {
	longest := pollEach
	if !l.stopping {
		if err := l.issueDue(); err != nil {
			return err
		}
		if l.pace.on() && l.pace.count > 0 {
			longest = min(longest, max(0, l.pace.due-l.meter.now()))
		}
	}
	return l.wait(longest)
}

// happened reads once and continues to write.
func (l *Load) happened(index int, events uint32) error {
	c := l.conns[index]
	if events&^unix.EPOLLOUT != 0 {
		n, err := l.receive(c.socket, l.scratch)
		if err != nil {
			return err
		}
		l.current = c
		if err := c.in.take(l.scratch[:n], l.meter.now(), l.ended); err != nil {
			return err
		}
	}
	return l.flush(c)
}

// flush sends queued requests, and watches for room if some are left.
func (l *Load) flush(c *conn) error {
	if c.blocks || c.out.pending() {
		if err := c.out.flush(c.fd); err != nil {
			return os.NewSyscallError("write", err)
		}
	}
	return l.watch(c.socket, c.out.pending())
}

// pace issues requests at a rate that does not depend on the replies: an open loop. A
// request that finds no free place waits for one, and its latency counts from when it
// was due. So a server that stands still is charged for all that came meanwhile.
type pace struct {
	every time.Duration // between two requests; 0: each reply brings the next request
	due   time.Duration // when the next one is
	free  []*conn       // a ring of places for requests, longest free first
	first int
	count int
}

// newPace has a place for each request that may be open.
func newPace(rate float64, active []*conn, depth int) pace {
	if rate == 0 {
		return pace{}
	}
	p := pace{every: time.Duration(float64(time.Second) / rate), free: make([]*conn, len(active)*depth)}
	for range depth {
		for _, c := range active {
			p.release(c)
		}
	}
	return p
}

func (p *pace) on() bool { return p.every > 0 }

func (p *pace) release(c *conn) {
	p.free[(p.first+p.count)%len(p.free)] = c
	p.count++
}

// next returns the connection of a request that is due, and when it was; nil: there is
// none, or no place.
func (p *pace) next(now time.Duration) (*conn, time.Duration) {
	if p.count == 0 || p.due > now {
		return nil, 0
	}
	c, due := p.free[p.first], p.due
	p.first = (p.first + 1) % len(p.free)
	p.count--
	p.due += p.every
	return c, due
}

// issueDue issues all requests that are due and have a place.
func (l *Load) issueDue() error {
	for now := l.meter.now(); ; {
		c, due := l.pace.next(now)
		if c == nil {
			return nil
		}
		l.issue(c, due)
		if err := l.flush(c); err != nil {
			return err
		}
	}
}
