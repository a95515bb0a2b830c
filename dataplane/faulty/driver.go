package faulty

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/uring"
)

// Driver is a driver above another driver. It belongs to the thread of the other one.
type Driver interface {
	uring.Driver
	// Pending says whether the next Wait returns something.
	Pending() bool
}

type driver struct {
	uring.Driver
	ask func(Request) Fault
	// simulated: the descriptors are numbers that the driver below has made.
	simulated bool
	flying    map[key]*flight
	queue     []uring.Completion // to be delivered
	out       []uring.Completion // what the last Wait returned
	hold      int                // turns in which nothing is delivered
	broken    error              // Wait fails
	ops       uring.Op           // operations of its own
}

// key names an operation in flight. A socket has one of each kind.
type key struct {
	kind uring.Kind
	user uint64
}

// flight is one operation of the driver below.
type flight struct {
	op    uring.Op
	fault Fault             // of its final completion
	last  *uring.Completion // Early: the one that shall be the last
	part  *uring.Vec        // Part, Short: what is sent instead
	size  int               // SendEnd: of the list; of a request on a file that tells: what it says at most
	tells bool              // of a request on a file: all of it was done, and half is told
	list  *uring.Vec        // of a request on a file
	mem   *uring.Memory     // of part, there
}

const (
	// lateTurns is how many turns Late lasts, and lateNap how long one of them is at most.
	lateTurns = 5
	lateNap   = time.Millisecond
	// ownOps is above the names of the driver below.
	ownOps = 1 << 63
)

// OpenWith is open with faults: for the field Open of the configuration of a plane.
// It calls ask for each request, on the thread of the core; the zero Fault lets the
// request pass.
func OpenWith(open func(core int) (uring.Driver, error), ask func(Request) Fault) func(core int) (uring.Driver, error) {
	return func(core int) (uring.Driver, error) {
		if f := ask(Open); f.Errno != 0 {
			return nil, f.err(Open)
		}
		d, err := open(core)
		if err != nil {
			return nil, err
		}
		return New(d, ask), nil
	}
}

// New puts a Driver above d.
func New(d uring.Driver, ask func(Request) Fault) Driver {
	return &driver{Driver: d, ask: ask, flying: make(map[key]*flight), simulated: d.Info().Backend == "simulated"}
}

// err is the error of a call.
func (f Fault) err(r Request) error { return fmt.Errorf("injected: %s: %w", r, f.Errno) }

// call is the error of a call that fails at once.
func (d *driver) call(r Request) error {
	if f := d.ask(r); f.Errno != 0 {
		return f.err(r)
	}
	return nil
}

// op names an operation that the driver below does not have.
func (d *driver) op() uring.Op { d.ops++; return ownOps | d.ops }

// Listen implements uring.Driver.
func (d *driver) Listen(addr netip.AddrPort, opt uring.ListenOptions) (uring.Socket, error) {
	if err := d.call(Listen); err != nil {
		return uring.Socket{}, err
	}
	return d.Driver.Listen(addr, opt)
}

// Adopt implements uring.Driver. A descriptor that it refuses is still the
// caller's, who closes it.
func (d *driver) Adopt(fd int) (uring.Socket, error) {
	if err := d.call(Adopt); err != nil {
		return uring.Socket{}, err
	}
	return d.Driver.Adopt(fd)
}

// discard closes what nobody has taken.
func (d *driver) discard(fd int) {
	if !d.simulated {
		_ = unix.Close(fd)
	} else if s, err := d.Driver.Adopt(fd); err == nil {
		d.Driver.Close(s)
	}
}

// Detach implements uring.Driver.
func (d *driver) Detach(s uring.Socket) (int, error) {
	if err := d.call(Detach); err != nil {
		return -1, err
	}
	return d.Driver.Detach(s)
}

// Arm implements uring.Driver.
func (d *driver) Arm(kind uring.Kind, s uring.Socket, user uint64) (uring.Op, error) {
	if err := d.call(arms[kind]); err != nil {
		return 0, err
	}
	op, err := d.Driver.Arm(kind, s, user)
	if err == nil {
		d.flying[key{kind, user}] = &flight{op: op}
	}
	return op, err
}

// Connect implements uring.Driver.
func (d *driver) Connect(local, to netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	if err := d.call(Connect); err != nil {
		return uring.Socket{}, 0, err
	}
	s, op, err := d.Driver.Connect(local, to, opt, user)
	if err == nil {
		d.flying[key{uring.KindConnect, user}] = &flight{op: op, fault: d.ask(ConnectEnd)}
	}
	return s, op, err
}

// Recv implements uring.Driver.
func (d *driver) Recv(s uring.Socket, p, q []byte) (int, unix.Errno) {
	if f := d.ask(Read); f.Errno != 0 {
		return 0, f.Errno
	}
	return d.Driver.Recv(s, p, q)
}

// Send implements uring.Driver.
func (d *driver) Send(s uring.Socket, v *uring.Vec, user uint64, flags uring.SendFlags) (bool, uring.Op, error) {
	if err := d.call(Send); err != nil {
		return false, 0, err
	}
	f := d.ask(SendEnd)
	if f == (Fault{}) {
		return d.Driver.Send(s, v, user, flags)
	}
	fl := &flight{fault: f, size: v.Size()}
	if f.Form == Fails {
		d.answer(fl, uring.Completion{Kind: uring.KindSend, User: user})
		return false, d.op(), nil
	}
	if f.Form == Part || f.Form == Short {
		part, err := half(v)
		if err != nil {
			return false, 0, err
		}
		fl.part, v = part, part
	}
	if f.Form != Late {
		flags &^= uring.SendQuiet // what the driver below takes for a success is none, and must not be told late
	}
	done, op, err := d.Driver.Send(s, v, user, flags)
	switch {
	case err != nil:
		fl.free()
		return false, 0, err
	case done:
		d.answer(fl, uring.Completion{Kind: uring.KindSend, User: user, Res: int32(v.Size())})
		return false, d.op(), nil
	}
	d.flying[key{uring.KindSend, user}] = fl
	return false, op, nil
}

// half is a list of the first half of the bytes of v.
func half(v *uring.Vec) (*uring.Vec, error) {
	p, err := uring.NewVec(1)
	if err == nil {
		p.Append(v.AppendTo(nil)[:v.Size()/2])
	}
	return p, err
}

func (fl *flight) free() {
	if fl.part != nil {
		fl.part.Free()
		fl.part = nil
	}
	_ = fl.mem.Unmap() // none: nothing to do
}

// CloseDriver implements uring.Driver.
func (d *driver) CloseDriver() error {
	for _, c := range d.undelivered() {
		if c.Kind == uring.KindAccept && c.Res >= 0 {
			d.discard(int(c.Res))
		}
	}
	d.queue = nil
	err := d.Driver.CloseDriver()
	for _, fl := range d.flying {
		fl.free()
	}
	if f := d.ask(Close); f.Errno != 0 && err == nil {
		err = f.err(Close)
	}
	return err
}

// The rest is what becomes of completions. A multishot operation that shall fail is
// cancelled at the driver below, and the completion that says so gets the errno
// instead: so everything that came before is delivered, and nothing behind.

// arms are the requests of Arm, ends their answers.
var (
	arms = map[uring.Kind]Request{uring.KindAccept: Accept, uring.KindReady: Ready, uring.KindReceive: Receive}
	ends = map[uring.Kind]Request{uring.KindAccept: AcceptEnd, uring.KindReady: ReadyEnd, uring.KindReceive: ReceiveEnd}
)

// Wait implements uring.Driver.
func (d *driver) Wait(timeout time.Duration) ([]uring.Completion, error) {
	if d.broken == nil {
		d.broken = d.call(Wait)
	}
	if d.broken != nil {
		return nil, d.broken
	}
	switch {
	case d.hold == 0 && len(d.queue) > 0:
		timeout = 0
	case d.hold > 0 && (timeout < 0 || timeout > lateNap):
		timeout = lateNap
	}
	got, err := d.Driver.Wait(timeout)
	for i := range got {
		d.take(got[i])
	}
	if err != nil {
		return nil, err
	}
	if d.hold > 0 {
		d.hold--
		return nil, nil
	}
	n := len(d.queue)
	if d.simulated {
		n = min(n, 1) // the test decides what happens between any two
	}
	d.out = append(d.out[:0], d.queue[:n]...)
	d.queue = slices.Delete(d.queue, 0, n)
	return d.out, nil
}

// Pending says whether Wait would return something, above a simulated driver.
func (d *driver) Pending() bool {
	below, ok := d.Driver.(interface{ Pending() bool })
	return len(d.queue) > 0 || d.hold > 0 || ok && below.Pending()
}

// undelivered are the completions that nobody has got.
func (d *driver) undelivered() []uring.Completion {
	list := slices.Clone(d.queue)
	for _, fl := range d.flying {
		if fl.last != nil {
			list = append(list, *fl.last)
		}
	}
	return list
}

// take deals with one completion of the driver below.
func (d *driver) take(c uring.Completion) {
	k := key{c.Kind, c.User}
	fl := d.flying[k]
	switch {
	case fl == nil:
		d.queue = append(d.queue, c)
	case c.Flags&uring.More == 0:
		delete(d.flying, k)
		if _, file := endOf[c.Kind]; file {
			d.fileAnswer(fl, c)
		} else {
			d.answer(fl, c)
		}
	default:
		d.more(fl, c)
	}
}

// more is a completion of an operation that stays armed.
func (d *driver) more(fl *flight, c uring.Completion) {
	if fl.last != nil { // the one behind it is the last
		d.queue = append(d.queue, *fl.last)
		*fl.last = c
		return
	}
	if fl.fault != (Fault{}) { // on its way to its end
		d.queue = append(d.queue, c)
		return
	}
	f := d.ask(ends[c.Kind])
	if f.Form == Early {
		fl.fault, fl.last = f, &c
		d.Driver.Cancel(fl.op)
		return
	}
	d.queue = append(d.queue, c)
	switch {
	case f.Form == Late:
		d.hold = lateTurns
	case f.Form == Empty:
		d.queue = append(d.queue, uring.Completion{User: c.User, Op: c.Op, Kind: c.Kind, Res: unix.POLLIN, Flags: uring.More})
	case f.Errno != 0:
		fl.fault = f
		d.Driver.Cancel(fl.op)
	}
}

// answer is the final completion of an operation.
func (d *driver) answer(fl *flight, c uring.Completion) {
	f := fl.fault
	if f.Errno != 0 && (c.Kind == uring.KindSend || c.Kind == uring.KindConnect || c.Res == -int32(unix.ECANCELED)) {
		c.Res = -int32(f.Errno)
	}
	switch {
	case f.Form == Early && c.Res == -int32(unix.ECANCELED):
		c = *fl.last
		c.Flags &^= uring.More
	case f.Form == Early: // it has ended by itself
		d.queue = append(d.queue, *fl.last)
	case f.Form == Late:
		d.hold = lateTurns
	}
	fl.free()
	d.queue = append(d.queue, c)
}
