// Package fakedriver is an I/O engine for tests of the loop and of what stands on
// it: it moves no bytes by itself.
package fakedriver

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Driver is a driver in memory whose every answer the test decides. It is
// used with a stepped plane, on the goroutine of the test.
type Driver struct {
	Multishot bool          // Receive works
	Socks     map[int]*Sock // by descriptor
	Queue     []uring.Completion
	Lent      int // receive buffers
	Released  int // and those that came back
	Closed    bool
	Disk      *Disk      // of its files
	Files     []*Request // on files, not answered
	ParkFiles bool       // the test answers them
	FileErr   unix.Errno // requests on files fail with it at once

	Registered  map[*uring.Memory]int // how often memory was registered that still is
	RegisterErr error                 // what RegisterMemory fails with, ErrUnsupported unless a test changes it
	CloseErr    error                 // what CloseDriver fails with

	last   []uring.Completion
	nextFD int
	nextOp uring.Op
}

// Sock is one socket of it.
type Sock struct {
	Drv        *Driver
	Sock       uring.Socket
	User       uint64   // as given to Accept, Ready or Receive
	Accepting  bool     // Accept
	Armed      bool     // Ready
	Receiving  bool     // Receive
	Pieces     [][]byte // what each read finds
	Whole      []byte   // or one stream, read as far as the buffer reaches
	End        bool
	Errno      unix.Errno
	Reads      int
	Crossed    int    // direct reads while a receive was armed
	Behind     int    // bytes that Recv has put behind its first place
	Sent       []byte // what was transmitted
	Writes     int
	Park       bool       // sends stay in flight until finish
	Refuse     unix.Errno // what a send ends with at once, if not 0
	InFlight   *uring.Vec
	Taken      int // bytes of it that the peer has
	SendUser   uint64
	SendFlags  uring.SendFlags
	CloseCalls int
	WriteEnded bool // EndWriting was called
	WasReset   bool // Reset was called

	acceptOp, recvOp, readyOp uring.Op
	sent                      int // bytes of the sends that have ended
}

// firstFD is far above what the kernel hands out.
const firstFD = 1 << 24

// New makes a driver without sockets.
func New() *Driver {
	return &Driver{Socks: map[int]*Sock{}, nextFD: firstFD, Disk: NewDisk(), RegisterErr: errors.ErrUnsupported}
}

// Open makes a connected socket.
func (d *Driver) Open() *Sock {
	d.nextFD++
	s := &Sock{Drv: d, Sock: uring.MakeSocket(d.nextFD)}
	d.Socks[d.nextFD] = s
	return s
}

// op makes the name of one more operation.
func (d *Driver) op() uring.Op { d.nextOp++; return d.nextOp }

// Info implements uring.Driver.
func (d *Driver) Info() uring.Info {
	return uring.Info{Backend: "fake", Receive: d.Multishot}
}

// Listen implements uring.Driver.
func (d *Driver) Listen(netip.AddrPort, uring.ListenOptions) (uring.Socket, error) {
	return d.Open().Sock, nil
}

// Adopt implements uring.Driver.
func (d *Driver) Adopt(fd int) (uring.Socket, error) {
	if s := d.Socks[fd]; s != nil {
		s.Drv = d
		return s.Sock, nil
	}
	return uring.Socket{}, unix.EBADF
}

// Arm implements uring.Driver.
func (d *Driver) Arm(k uring.Kind, s uring.Socket, user uint64) (uring.Op, error) {
	f := d.Socks[s.FD()]
	switch k {
	case uring.KindAccept:
		f.Accepting, f.User, f.acceptOp = true, user, d.op()
		return f.acceptOp, nil
	case uring.KindReady:
		f.Armed, f.User = true, user
		if len(f.Pieces) > 0 || len(f.Whole) > 0 || f.End || f.Errno != 0 {
			f.Edge(0)
		}
		f.readyOp = d.op()
		return f.readyOp, nil
	}
	if !d.Multishot {
		return 0, errors.ErrUnsupported
	}
	f.Receiving, f.User, f.recvOp = true, user, d.op()
	f.flow()
	return f.recvOp, nil
}

// Connect implements uring.Driver.
func (d *Driver) Connect(_, _ netip.AddrPort, _ uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	s, op := d.Open(), d.op()
	d.Queue = append(d.Queue, uring.Completion{Kind: uring.KindConnect, User: user, Op: op})
	return s.Sock, op, nil
}

// Release implements uring.Driver.
func (d *Driver) Release(uring.Buffer) { d.Released++ }

// Recv implements uring.Driver.
func (d *Driver) Recv(s uring.Socket, p, q []byte) (int, unix.Errno) {
	f := d.Socks[s.FD()]
	f.Reads++
	if f.Receiving {
		f.Crossed++
	}
	take := func(src []byte) int {
		n := copy(p, src)
		more := copy(q, src[n:])
		if len(p) > 0 {
			f.Behind += more
		}
		return n + more
	}
	switch {
	case len(f.Whole) > 0:
		n := take(f.Whole)
		f.Whole = f.Whole[n:]
		return n, 0
	case len(f.Pieces) > 0:
		n := take(f.Pieces[0])
		if n == len(f.Pieces[0]) {
			f.Pieces = f.Pieces[1:]
			if len(f.Pieces) > 0 {
				f.Edge(0) // each piece is an arrival of its own
			}
		} else {
			f.Pieces[0] = f.Pieces[0][n:]
		}
		return n, 0
	case f.Errno != 0:
		return 0, f.Errno
	case f.End:
		return 0, 0
	}
	return 0, unix.EAGAIN
}

// Send implements uring.Driver.
func (d *Driver) Send(s uring.Socket, v *uring.Vec, user uint64, flags uring.SendFlags) (bool, uring.Op, error) {
	f := d.Socks[s.FD()]
	f.Writes++
	if f.Refuse != 0 {
		return false, 0, f.Refuse
	}
	f.InFlight, f.SendUser, f.SendFlags = v, user, flags
	if f.Park {
		return false, d.op(), nil
	}
	f.transmit(v)
	f.InFlight = nil
	return true, 0, nil
}

// Cancel implements uring.Driver.
func (d *Driver) Cancel(op uring.Op) {
	d.cancelFile(op)
	for _, f := range d.Socks {
		if f.Receiving && f.recvOp == op {
			f.endReceive(unix.ECANCELED)
		}
		if f.readyOp == op {
			f.endReady()
		}
		if f.acceptOp == op {
			f.EndAccept(unix.ECANCELED)
		}
	}
}

// EndWriting implements uring.Driver.
func (d *Driver) EndWriting(s uring.Socket) { d.Socks[s.FD()].WriteEnded = true }

// Detach implements uring.Driver.
func (d *Driver) Detach(s uring.Socket) (int, error) {
	if d.Socks[s.FD()].Accepting {
		return -1, unix.EBUSY
	}
	return s.FD(), nil
}

// Close implements uring.Driver.
func (d *Driver) Close(s uring.Socket) {
	f := d.Socks[s.FD()]
	if f == nil {
		return
	}
	f.CloseCalls++
	f.EndAccept(unix.ECANCELED)
	f.endReady()
	f.endReceive(unix.ECANCELED)
	if f.InFlight != nil {
		f.Finish(-int32(unix.ECANCELED))
	}
}

// Reset implements uring.Driver.
func (d *Driver) Reset(s uring.Socket) {
	if f := d.Socks[s.FD()]; f != nil {
		f.WasReset = true
	}
	d.Close(s)
}

// LocalAddr implements uring.Driver.
func (d *Driver) LocalAddr(uring.Socket) netip.AddrPort { return netip.AddrPort{} }

// PeerAddr implements uring.Driver.
func (d *Driver) PeerAddr(uring.Socket) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 1)
}

// Acknowledged implements uring.Driver. The peer takes writes that have ended at once.
func (d *Driver) Acknowledged(s uring.Socket) uint64 {
	f := d.Socks[s.FD()]
	return uint64(f.sent + f.Taken)
}

// Wait implements uring.Driver.
func (d *Driver) Wait(time.Duration) ([]uring.Completion, error) {
	// Two lists, so that the one handed out stays valid until the next Wait.
	d.Queue, d.last = d.last[:0], d.Queue
	return d.last, nil
}

// Wake implements uring.Driver.
func (d *Driver) Wake() {}

// Stats implements uring.Driver.
func (d *Driver) Stats() uring.Stats { return uring.Stats{InFlight: uint64(len(d.Files))} }

// CloseDriver implements uring.Driver.
func (d *Driver) CloseDriver() error {
	d.Closed = true
	for fd, h := range d.Disk.opened {
		if h.owner == d {
			delete(d.Disk.opened, fd)
		}
	}
	return d.CloseErr
}

// Edge reports readiness with more bits of the poll mask.
func (f *Sock) Edge(more int32) {
	if f.Armed {
		f.Drv.Queue = append(f.Drv.Queue, uring.Completion{Kind: uring.KindReady, User: f.User, Res: unix.POLLIN | more, Flags: uring.More})
	}
}

// Arrive adds what one read finds.
func (f *Sock) Arrive(pieces ...[]byte) {
	for _, p := range pieces {
		if len(p) > 0 { // an empty read would be the end
			f.Pieces = append(f.Pieces, append([]byte(nil), p...))
		}
	}
	f.flow()
	f.Edge(0)
}

// flow hands pieces to an armed multishot receive.
func (f *Sock) flow() {
	if !f.Receiving {
		return
	}
	for len(f.Whole) > 0 {
		n := min(len(f.Whole), 64<<10)
		f.Pieces, f.Whole = append(f.Pieces, f.Whole[:n]), f.Whole[n:]
	}
	for _, p := range f.Pieces {
		f.Drv.Lent++
		f.Drv.Queue = append(f.Drv.Queue, uring.Completion{
			Kind: uring.KindReceive, User: f.User, Op: f.recvOp, Res: int32(len(p)), Data: p, Buf: 1, Flags: uring.More,
		})
	}
	f.Pieces = nil
	if f.End {
		f.endReceive(0)
	}
}

// RunOut ends an armed multishot receive, as no receive buffer is free.
func (f *Sock) RunOut() { f.endReceive(unix.ENOBUFS) }

// end ends what is armed.
func (f *Sock) end(armed *bool, k uring.Kind, op uring.Op, why unix.Errno) {
	if *armed {
		*armed = false
		f.Drv.Queue = append(f.Drv.Queue, uring.Completion{Kind: k, User: f.User, Op: op, Res: -int32(why)})
	}
}

func (f *Sock) endReceive(why unix.Errno) { f.end(&f.Receiving, uring.KindReceive, f.recvOp, why) }

func (f *Sock) endReady() { f.end(&f.Armed, uring.KindReady, f.readyOp, unix.ECANCELED) }

// Connects has a listener accept a connection.
func (f *Sock) Connects() *Sock {
	c := f.Drv.Open()
	f.Drv.Queue = append(f.Drv.Queue, uring.Completion{Kind: uring.KindAccept, User: f.User, Op: f.acceptOp, Res: int32(c.Sock.FD()), Flags: uring.More})
	return c
}

// EndAccept ends an accept that is armed.
func (f *Sock) EndAccept(why unix.Errno) { f.end(&f.Accepting, uring.KindAccept, f.acceptOp, why) }

// HangUp is the end of the peer's stream.
func (f *Sock) HangUp() {
	f.End = true
	f.flow()
	f.Edge(unix.POLLRDHUP)
}

// Finish ends the send in flight: res is its result, or all of it for 0.
func (f *Sock) Finish(res int32) {
	v := f.InFlight
	f.InFlight, f.Taken = nil, 0
	if res == 0 {
		f.transmit(v)
		res = int32(v.Size())
	}
	f.Drv.Queue = append(f.Drv.Queue, uring.Completion{Kind: uring.KindSend, User: f.SendUser, Res: res})
}

// transmit sends all of v.
func (f *Sock) transmit(v *uring.Vec) {
	f.Sent = v.AppendTo(f.Sent)
	f.sent += v.Size()
}
