package simnet

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Driver is the engine of one simulated core. It never sleeps: Wait returns at
// most one completion, so that the test decides what happens between any two.
type Driver interface {
	uring.Driver
	// Pending says whether Wait would return something.
	Pending() bool
}

type driver struct {
	host    *Host
	queue   []uring.Completion
	last    [1]uring.Completion
	next    uring.Op
	lists   map[int]*listener
	lent    int          // bytes of receive buffers that were not released
	buffers uring.Buffer // the last one that was lent
	held    map[uring.Buffer]int
	stats   uring.Stats
	wakes   atomic.Uint64
	gone    bool
}

// Driver makes the engine of a core on the host. Behind Die a new process begins with it.
func (h *Host) Driver() Driver {
	if h.disk != nil {
		h.disk.orphan = false
	}
	return &driver{host: h, lists: make(map[int]*listener), held: make(map[uring.Buffer]int)}
}

// Pending implements Driver.
func (d *driver) Pending() bool { return len(d.queue) > 0 }

func (d *driver) op() uring.Op {
	d.next++
	d.stats.Submitted++
	return d.next
}

func (d *driver) push(c uring.Completion) {
	if !d.gone {
		d.queue = append(d.queue, c)
	}
}

// Info implements uring.Driver.
func (d *driver) Info() uring.Info {
	return uring.Info{Backend: "simulated", Receive: d.host.net.opt.ReceiveBuffers > 0}
}

// Listen implements uring.Driver.
func (d *driver) Listen(addr netip.AddrPort, opt uring.ListenOptions) (uring.Socket, error) {
	l, errno := d.host.listen(d, addr, opt.ReusePort)
	if errno != 0 {
		return uring.Socket{}, errno
	}
	d.lists[l.id] = l
	return uring.MakeSocket(l.id), nil
}

// Adopt implements uring.Driver.
func (d *driver) Adopt(fd int) (uring.Socket, error) {
	for _, group := range d.host.listeners {
		for _, l := range group {
			if l.id == fd && l.drv == nil {
				l.drv, d.lists[fd] = d, l
				return uring.MakeSocket(fd), nil
			}
		}
	}
	e := d.host.ends[fd]
	if e == nil {
		return uring.Socket{}, unix.EBADF
	}
	e.drv = d
	return uring.MakeSocket(fd), nil
}

// Arm implements uring.Driver. It receives if Options.ReceiveBuffers is not 0.
func (d *driver) Arm(k uring.Kind, s uring.Socket, user uint64) (uring.Op, error) {
	if k == uring.KindAccept {
		return d.accept(s, user)
	}
	e := d.end(s)
	if e == nil {
		return 0, unix.EBADF
	}
	if k == uring.KindReceive {
		return e.receive(user)
	}
	e.armed, e.user = true, user
	if e.rx.size > 0 || e.rxEnd || e.rxErr != 0 {
		d.ready(e)
	}
	e.readyOp = d.op()
	return e.readyOp, nil
}

func (d *driver) accept(s uring.Socket, user uint64) (uring.Op, error) {
	l := d.lists[s.FD()]
	if l == nil {
		return 0, unix.EBADF
	}
	l.armed, l.user = true, user
	for _, e := range l.backlog {
		l.hand(e)
	}
	l.backlog = nil
	l.acceptOp = d.op()
	return l.acceptOp, nil
}

// hand gives a connection to the acceptor.
func (l *listener) hand(e *end) {
	l.drv.push(uring.Completion{Kind: uring.KindAccept, User: l.user, Res: int32(e.id), Flags: uring.More})
}

// Connect implements uring.Driver.
func (d *driver) Connect(local, to netip.AddrPort, _ uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	n, h := d.host.net, d.host
	port := local.Port()
	if port == 0 {
		port = h.ephemeral()
	}
	n.nextID++
	e := &end{id: n.nextID, host: h, drv: d, local: netip.AddrPortFrom(h.ip, port), remote: to, connUser: user, connOp: d.op()}
	h.ends[e.id] = e
	n.After(n.delay(), func() { d.syn(e) })
	return uring.MakeSocket(e.id), e.connOp, nil
}

// syn is the arrival of a connection request.
func (d *driver) syn(e *end) {
	n := d.host.net
	if e.closed || d.gone {
		return
	}
	target := n.byIP[e.remote.Addr()]
	if target == nil || target.dead || n.cut[[2]*Host{d.host, target}] || n.cut[[2]*Host{target, d.host}] {
		n.After(time.Second, func() { d.syn(e) }) // it is sent again
		return
	}
	group := target.listeners[e.remote.Port()]
	if len(group) == 0 {
		n.Note("refuse %d>%v", e.id, e.remote)
		d.endConnect(e, -int32(unix.ECONNREFUSED))
		return
	}
	l := group[n.rng.IntN(len(group))]
	n.nextID++
	p := &end{id: n.nextID, host: target, drv: l.drv, local: e.remote, remote: e.local, peer: e}
	e.peer = p
	target.ends[p.id] = p
	n.Note("connect %d>%d at listener %d", e.id, p.id, l.id)
	if l.armed {
		l.hand(p)
	} else {
		l.backlog = append(l.backlog, p)
	}
	d.endConnect(e, 0)
}

// endConnect completes a Connect that is under way.
func (d *driver) endConnect(e *end, res int32) {
	d.push(uring.Completion{Kind: uring.KindConnect, User: e.connUser, Op: e.connOp, Res: res})
	e.connOp = 0
}

// end is the connection of a socket.
func (d *driver) end(s uring.Socket) *end { return d.host.ends[s.FD()] }

// ready is an edge; several that are not seen yet are one, which says all that
// they say.
func (d *driver) ready(e *end) {
	mask := int32(unix.POLLIN)
	if e.rxEnd {
		mask |= unix.POLLRDHUP
	}
	if e.rxErr != 0 {
		mask |= unix.POLLERR | unix.POLLHUP
	}
	for i := range e.drv.queue {
		if c := &e.drv.queue[i]; c.Kind == uring.KindReady && c.User == e.user {
			c.Res |= mask
			return
		}
	}
	e.drv.push(uring.Completion{Kind: uring.KindReady, User: e.user, Res: mask, Flags: uring.More})
}

// Recv implements uring.Driver.
func (d *driver) Recv(s uring.Socket, p, q []byte) (int, unix.Errno) {
	e := d.end(s)
	switch {
	case e == nil || e.closed:
		return 0, unix.EBADF
	case e.rx.size > 0:
		k := e.rx.read(p)
		k += e.rx.read(q)
		e.drained()
		return k, 0
	case e.rxErr != 0:
		return 0, e.rxErr
	case e.rxEnd:
		return 0, 0
	}
	return 0, unix.EAGAIN
}

// Send implements uring.Driver.
func (d *driver) Send(s uring.Socket, v *uring.Vec, user uint64, _ uring.SendFlags) (bool, uring.Op, error) {
	e := d.end(s)
	if e == nil || e.closed {
		return false, 0, unix.EBADF
	}
	op := d.op()
	e.sendUser, e.sendSize = user, v.Size()
	if e.rxErr != 0 || e.writeEnded {
		d.finishSend(e, -int32(unix.EPIPE))
		return false, op, nil
	}
	all := e.write(v.AppendTo(nil))
	switch {
	case !all:
		e.sending = true
		return false, op, nil
	case d.host.net.rng.IntN(2) == 0:
		return true, op, nil
	}
	d.finishSend(e, int32(e.sendSize))
	return false, op, nil
}

// finishSend completes the Send under way.
func (d *driver) finishSend(e *end, res int32) {
	e.drv.push(uring.Completion{Kind: uring.KindSend, User: e.sendUser, Res: res})
}

// Cancel implements uring.Driver, for watches, accepts and
// requests on files.
func (d *driver) Cancel(op uring.Op) {
	if op == 0 {
		return // none has that name
	}
	d.cancelFile(op)
	for _, e := range d.host.ordered() {
		switch {
		case e.drv != d:
		case e.armed && e.readyOp == op:
			e.armed = false
			d.push(uring.Completion{Kind: uring.KindReady, User: e.user, Op: op, Res: -int32(unix.ECANCELED)})
			return
		case e.recvOp != 0 && e.recvOp == op:
			e.endReceive(-int32(unix.ECANCELED))
			return
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.lists)) {
		if l := d.lists[id]; l.armed && l.acceptOp == op {
			l.armed = false
			d.push(uring.Completion{Kind: uring.KindAccept, User: l.user, Op: op, Res: -int32(unix.ECANCELED)})
			return
		}
	}
}

// Detach implements uring.Driver. The number that it returns is none of a
// descriptor: only a driver of the same host can adopt it.
func (d *driver) Detach(s uring.Socket) (int, error) {
	if l := d.lists[s.FD()]; l != nil {
		if l.armed {
			return -1, unix.EBUSY
		}
		delete(d.lists, l.id)
		l.drv = nil
		return l.id, nil
	}
	e := d.end(s)
	switch {
	case e == nil:
		return -1, unix.EBADF
	case e.armed || e.sending || e.recvOp != 0:
		return -1, unix.EBUSY
	}
	e.drv = nil
	return e.id, nil
}

// EndWriting implements uring.Driver.
func (d *driver) EndWriting(s uring.Socket) {
	if e := d.end(s); e != nil {
		e.writeEnded = true
		e.finish()
	}
}

// Close implements uring.Driver.
func (d *driver) Close(s uring.Socket) {
	if l := d.lists[s.FD()]; l != nil {
		delete(d.lists, s.FD())
		armed := l.armed // else user is of an accept that has ended, maybe on another core
		l.close(d.host)
		if armed {
			d.push(uring.Completion{Kind: uring.KindAccept, User: l.user, Op: l.acceptOp, Res: -int32(unix.ECANCELED)})
		}
		return
	}
	e := d.end(s)
	if e == nil {
		return
	}
	if e.connOp != 0 {
		d.endConnect(e, -int32(unix.ECANCELED))
	}
	if e.sending {
		e.sending = false
		d.finishSend(e, -int32(unix.ECANCELED))
	}
	if e.armed {
		e.armed = false
		d.drop(e.user)
		d.push(uring.Completion{Kind: uring.KindReady, User: e.user, Res: -int32(unix.ECANCELED)})
	}
	if e.recvOp != 0 {
		e.endReceive(-int32(unix.ECANCELED))
	}
	d.host.closeEnd(e)
}

// Reset implements uring.Driver.
func (d *driver) Reset(s uring.Socket) {
	if e := d.end(s); e != nil {
		d.host.net.counts.Ours++
		e.abrupt = true
	}
	d.Close(s)
}

// drop forgets edges of a watch that is over.
func (d *driver) drop(user uint64) {
	kept := d.queue[:0]
	for _, c := range d.queue {
		if c.Kind != uring.KindReady || c.User != user {
			kept = append(kept, c)
		}
	}
	d.queue = kept
}

// LocalAddr implements uring.Driver.
func (d *driver) LocalAddr(s uring.Socket) netip.AddrPort {
	if l := d.lists[s.FD()]; l != nil {
		return l.addr
	}
	if e := d.end(s); e != nil {
		return e.local
	}
	return netip.AddrPort{}
}

// PeerAddr implements uring.Driver.
func (d *driver) PeerAddr(s uring.Socket) netip.AddrPort {
	if e := d.end(s); e != nil {
		return e.remote
	}
	return netip.AddrPort{}
}

// Acknowledged implements uring.Driver.
func (d *driver) Acknowledged(s uring.Socket) uint64 {
	if e := d.end(s); e != nil {
		return e.landed
	}
	return 0
}

// Wait implements uring.Driver: it returns at most one completion.
func (d *driver) Wait(time.Duration) ([]uring.Completion, error) {
	if len(d.queue) == 0 {
		return nil, nil
	}
	d.last[0] = d.queue[0]
	d.queue = append(d.queue[:0], d.queue[1:]...) // short, and never grows this way
	d.stats.Completions++
	return d.last[:], nil
}

// Wake implements uring.Driver. Any goroutine may call it.
func (d *driver) Wake() {
	d.wakes.Add(1)
	if wake := d.host.net.opt.Wake; wake != nil {
		wake()
	}
}

// Stats implements uring.Driver.
func (d *driver) Stats() uring.Stats {
	st := d.stats
	st.Wakes = d.wakes.Load()
	return st
}

// CloseDriver implements uring.Driver.
func (d *driver) CloseDriver() error {
	d.closeFiles()
	for _, e := range d.host.ordered() {
		if e.drv == d {
			d.Close(uring.MakeSocket(e.id))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.lists)) {
		d.lists[id].close(d.host)
	}
	d.gone, d.queue = true, nil
	return nil
}
