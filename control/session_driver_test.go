package control_test

import (
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/uring"
)

// socketCall is a kind of call that a brittle driver lets fail.
type socketCall string

const (
	aWrite   socketCall = "write"
	aRead    socketCall = "read"
	anAccept socketCall = "accept"
	aConnect socketCall = "connect"
)

// brittle is how the sockets of a node break: at the nth call of a kind,
// counted from 1, or when so many bytes were received, whatever comes first.
type brittle struct {
	call   socketCall
	nth    int64
	bytes  int64 // received over all sockets
	calls  atomic.Int64
	in     atomic.Int64
	broken atomic.Bool
}

// unlimited is more than any test receives.
const unlimited = math.MaxInt64

// on has a node use such sockets.
func (b *brittle) on(v variant) func(*msgrtest.NodeConfig) {
	return func(c *msgrtest.NodeConfig) {
		c.Plane.Open = func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{Backend: v.backend})
			return &brittleDriver{Driver: d, b: b}, err
		}
	}
}

// fails counts a call, and says whether it is the one.
func (b *brittle) fails(call socketCall) bool {
	if call != b.call || b.calls.Add(1) != b.nth {
		return false
	}
	b.broken.Store(true)
	return true
}

// brittleDriver belongs to one core.
type brittleDriver struct {
	uring.Driver
	b    *brittle
	dead uring.Socket // its bytes are used up
}

func (d *brittleDriver) Send(s uring.Socket, v *uring.Vec, user uint64, flags uring.SendFlags) (bool, uring.Op, error) {
	if d.b.fails(aWrite) {
		d.Shutdown(s) // the kernel refuses the write with EPIPE
	}
	return d.Driver.Send(s, v, user, flags)
}

func (d *brittleDriver) Recv(s uring.Socket, p []byte) (int, unix.Errno) {
	return d.Recvv(s, p, nil)
}

func (d *brittleDriver) Recvv(s uring.Socket, p, q []byte) (int, unix.Errno) {
	if s == d.dead || d.b.fails(aRead) {
		return 0, unix.ECONNRESET
	}
	left := d.b.bytes - d.b.in.Load()
	cut := left > 0 && left <= int64(len(p)+len(q))
	if cut {
		p, q = p[:min(int64(len(p)), left)], q[:max(0, min(int64(len(q)), left-int64(len(p))))]
	}
	var n int
	var errno unix.Errno
	if len(q) == 0 {
		n, errno = d.Driver.Recv(s, p)
	} else {
		n, errno = d.Driver.Recvv(s, p, q)
	}
	if d.b.in.Add(int64(max(n, 0))); cut && int64(n) == left {
		// The peer's bytes behind this one are lost.
		d.b.broken.Store(true)
		d.dead = s
		d.Shutdown(s)
	}
	return n, errno
}

func (d *brittleDriver) Close(s uring.Socket) {
	if s == d.dead {
		d.dead = uring.Socket{}
	}
	d.Driver.Close(s)
}

func (d *brittleDriver) Connect(local, to netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	if d.b.fails(aConnect) {
		return uring.Socket{}, 0, unix.ECONNREFUSED
	}
	return d.Driver.Connect(local, to, opt, user)
}

func (d *brittleDriver) Wait(timeout time.Duration) ([]uring.Completion, error) {
	done, err := d.Driver.Wait(timeout)
	for i := range done {
		c := &done[i]
		if c.Kind == uring.KindAccept && c.Res >= 0 && d.b.fails(anAccept) {
			if e := unix.Close(int(c.Res)); e != nil && err == nil {
				err = e
			}
			c.Res = -int32(unix.ECONNABORTED)
		}
	}
	return done, err
}
