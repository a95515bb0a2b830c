package simnet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// earlyEvery is in how many pieces a receive ends by itself, on average: with bytes, as
// when a completion queue is full, or for want of buffers.
const earlyEvery = 40

// Receive implements uring.Driver, if Options.ReceiveBuffers is not 0.
func (d *driver) Receive(s uring.Socket, user uint64) (uring.Op, error) {
	if d.host.net.opt.ReceiveBuffers == 0 {
		return 0, fmt.Errorf("simulated network: multishot receive: %w", errors.ErrUnsupported)
	}
	e := d.end(s)
	if e == nil {
		return 0, unix.EBADF
	}
	op := d.op()
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
