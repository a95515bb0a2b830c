package inject

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Driver is a uring.Driver whose sockets fail. It belongs to the thread of the one
// below it.
type Driver struct {
	uring.Driver
	every int
	rng   *rand.Rand
	// receiving are the sockets by the user of their uring.KindReceive, users the way back.
	receiving map[uint64]uring.Socket
	users     map[uring.Socket]uint64
}

var _ uring.Driver = (*Driver)(nil)

// Open is open with failures, one in every socket operations: for the field Open of
// the configuration of a plane. every is positive.
func Open(open func(core int) (uring.Driver, error), every int, seed uint64) func(core int) (uring.Driver, error) {
	return func(core int) (uring.Driver, error) {
		d, err := open(core)
		if err != nil {
			return nil, err
		}
		return New(d, every, rand.New(rand.NewPCG(seed, uint64(core)))), nil
	}
}

// New puts a Driver above d. rng is its own from then on.
func New(d uring.Driver, every int, rng *rand.Rand) *Driver {
	return &Driver{Driver: d, every: every, rng: rng, receiving: make(map[uint64]uring.Socket), users: make(map[uring.Socket]uint64)}
}

// operation is one on s.
func (d *Driver) operation(s uring.Socket) {
	if d.rng.IntN(d.every) == 0 {
		d.Shutdown(s)
	}
}

// Send implements uring.Driver.
func (d *Driver) Send(s uring.Socket, v *uring.Vec, user uint64, flags uring.SendFlags) (bool, uring.Op, error) {
	d.operation(s)
	return d.Driver.Send(s, v, user, flags)
}

// Recv implements uring.Driver.
func (d *Driver) Recv(s uring.Socket, p, q []byte) (int, unix.Errno) {
	d.operation(s)
	return d.Driver.Recv(s, p, q)
}

// Arm implements uring.Driver.
func (d *Driver) Arm(k uring.Kind, s uring.Socket, user uint64) (uring.Op, error) {
	op, err := d.Driver.Arm(k, s, user)
	if err == nil && k == uring.KindReceive {
		d.receiving[user], d.users[s] = s, user
	}
	return op, err
}

// Wait implements uring.Driver. Bytes that have come are delivered, and what is
// behind them is lost.
func (d *Driver) Wait(timeout time.Duration) ([]uring.Completion, error) {
	done, err := d.Driver.Wait(timeout)
	for i := range done {
		if done[i].Kind != uring.KindReceive || done[i].Res <= 0 {
			continue
		}
		if s, open := d.receiving[done[i].User]; open {
			d.operation(s)
		}
	}
	return done, err
}

// Close implements uring.Driver.
func (d *Driver) Close(s uring.Socket) {
	d.forget(s)
	d.Driver.Close(s)
}

// Detach implements uring.Driver.
func (d *Driver) Detach(s uring.Socket) (int, error) {
	fd, err := d.Driver.Detach(s)
	if err == nil {
		d.forget(s)
	}
	return fd, err
}

// forget ends what is known of s, whose user may be that of another one soon.
func (d *Driver) forget(s uring.Socket) {
	user, known := d.users[s]
	if !known {
		return
	}
	delete(d.users, s)
	if d.receiving[user] == s {
		delete(d.receiving, user)
	}
}
