package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

var le = binary.LittleEndian

// Call is an operation for which no goroutine waits. A user embeds it in its own request, may use it again
// once Done has run, and must not copy it. The bounds of the package hold for its data.
type Call struct {
	// Request has the operations, which get their results.
	Request osdop.Request
	// Into is memory for the data of the answer, if only one operation has output: a read. It belongs to the
	// engine until Done. Without it the outputs lie in the message of the answer, until Reply.Release.
	Into []byte
	// Done is called once for each Start that has succeeded: on a core, of a timer, or on a goroutine that is
	// in a method here, as in that Start. It must not block, and may Start the call again.
	Done func(c *Call)
	// Context is the user's own.
	Context any

	// Reply and Err are the outcome, when Done runs.
	Reply osdop.Reply
	Err   error

	op    machine.Op
	e     *Engine
	ctx   context.Context
	cost  uint64 // room.charge
	since time.Time
	busy  atomic.Bool           // from Start until Done
	home  atomic.Pointer[shard] // the shard that has it, or gets it
	cause atomic.Pointer[error] // of Cancel
	holds atomic.Int32          // how many users of its memory there are: at 0 the call is over

	// Owner: room.mu.
	inLine   bool
	admitted chan struct{} // closed when it is not in line any more; nil: nobody waits for that

	// Owner: the lock of its home.
	running  bool
	next     *Call // behind it among the pushed calls: the shard's
	entered  bool  // it has room
	posting  control.Posting
	posted   bool             // Into was posted
	message  *control.Message // the answer, until the caller has its data
	kept     bool             // the answer was retained
	standing []standing       // attempts whose data a connection may still read, and perhaps others
	answered *control.Conn    // that brought the answer; nil: none
}

// standing is an attempt in the queue of a connection.
type standing struct {
	attempt *attempt
	conn    *control.Conn
}

// postFrom is the size from which memory is posted. A smaller answer comes whole in one read, and is copied
// anyway.
const postFrom = 16 << 10

// Start begins an operation. At the bounds of the engine it waits for its turn, or for the end of ctx with
// ErrNotSent; on a core it does not wait, and the call stands in line when Start returns. If ctx ends later
// the call is canceled, at the next tick of the engine; Cancel does it at once. Any goroutine, a core's too.
func (e *Engine) Start(ctx context.Context, c *Call) error {
	wait, err := e.start(ctx, c, true)
	if err != nil || wait == nil {
		return err
	}
	return e.admittedIn(ctx, c, wait)
}

// start is Start, but it returns a channel where that waits.
func (e *Engine) start(ctx context.Context, c *Call, mayWait bool) (wait chan struct{}, err error) {
	if !c.busy.CompareAndSwap(false, true) {
		return nil, ErrInUse
	}
	var refused *Error
	switch snap, flags := c.Request.Snap, c.Request.Flags; {
	case e.over.Load():
		refused = c.error(e, ErrClosed)
	case ctx.Err() != nil:
		refused = c.error(e, context.Cause(ctx))
	case flags&osdop.FlagWrite != 0 && snap != 0 && snap != osdop.Head:
		refused = c.error(e, syscall.EROFS) // an OSD would change the present state
		refused.Outcome = ErrRefused
	}
	if refused != nil {
		c.busy.Store(false)
		return nil, refused
	}
	c.charge()
	c.e, c.ctx, c.since, c.Reply, c.Err = e, ctx, e.now(), osdop.Reply{}, nil
	c.message, c.posted, c.kept = nil, false, false
	c.op.Object, c.op.Flags, c.op.User = c.Request.Target, c.Request.Flags, c
	switch f := c.op.Flags; {
	case f&osdop.AnyReplica == 0:
	case slices.ContainsFunc(c.Request.Ops, func(op osdop.Op) bool { return op.Code == osdop.CodeCall }):
		c.op.Flags &^= osdop.AnyReplica // all OSDs but the primary drop it if it writes, as a method of a class may
	case f&osdop.BalanceReads != 0: // goes before the other flag
		c.op.Pick = rand.Int()
	default:
		c.op.Pick = machine.Nearest
	}
	c.cause.Store(nil)
	c.holds.Store(1)
	if c.entered = e.room.enter(c.cost, false); !c.entered {
		return e.stand(c, mayWait && !e.onCore()), nil
	}
	e.submit(c)
	return nil, nil
}

// Cancel ends a call that is under way, with the cause. Done runs unless it did before; it may not have when
// Cancel returns. Any goroutine, but not at the same time as Start.
func (c *Call) Cancel(cause error) {
	if c.e == nil {
		return
	}
	c.cause.Store(&cause) // for the shard that it is on the way to
	if c.e.room.takeOut(c, nil) {
		c.e.letIn()
		c.Err = c.e.lineError(c, cause)
		c.conclude()
		return
	}
	if s := lock(&c.home); s != nil {
		s.takeLocked()
		s.cancelLocked(c, cause)
		s.unlock()
	}
}

func (s *shard) cancelLocked(c *Call, cause error) {
	if c.running {
		c.Err = s.errorLocked(&c.op, c.code(), c.since, cause, false)
		s.m.Cancel(&c.op)
		s.endLocked(c)
	}
}

// endLocked puts a call among those that are over. Their Done runs when the lock is free.
func (s *shard) endLocked(c *Call) {
	c.running = false
	s.ended.Push(&c.op)
}

// conclude runs the Done of calls that are over.
func conclude(ended *machine.Line) {
	for o := ended.First(); o != nil; o = ended.First() {
		ended.Remove(o)
		o.User.(*Call).conclude()
	}
}

// conclude runs Done as soon as the messenger has given the memory back.
func (c *Call) conclude() {
	if c.entered {
		c.entered = false
		c.e.leave(c)
	}
	if c.posted && c.holds.Load() > 1 {
		c.posting.Withdraw()
	}
	c.recall()
	c.let()
}

// recall has the connections give the data back that the caller may change from now on. It hangs up on an OSD
// that has not read an attempt yet which another one has answered. The OSD that has answered has all of it.
func (c *Call) recall() {
	unknown := errors.Is(c.Err, ErrUnknown) // the data must not change
	for _, s := range c.standing {
		if unknown || s.conn == c.answered {
			if s.attempt.call.CompareAndSwap(c, nil) {
				c.holds.Add(-1)
			}
		} else if s.attempt.call.Load() == c {
			c.e.hangUp(s.conn, errStanding)
		}
	}
	clear(c.standing)
	c.standing, c.answered = c.standing[:0], nil
}

var errStanding = errors.New("the OSD did not read an operation that has moved to another one")

// let says that a user of the memory of a call does not need it any more.
func (c *Call) let() {
	if c.holds.Add(-1) == 0 {
		c.finish()
	}
}

// finish gives the caller the data of the answer, and the call.
func (c *Call) finish() {
	if m := c.message; m != nil {
		c.message = nil
		c.deliver(m)
		if c.kept {
			m.Release()
		}
	}
	c.busy.Store(false)
	c.Done(c)
}

// deliver brings the outputs into the memory of the caller, if it has given any.
func (c *Call) deliver(m *control.Message) {
	switch {
	case len(c.Into) == 0:
		m.Retain()
		c.Reply.Message = m
		c.place(m.Data) // a small message has moved
	case len(m.Data) > len(c.Into):
		if c.Err == nil {
			c.Err = &Error{Code: c.code(), Object: c.Request.Target, OSD: -1, Outcome: ErrUnknown, Err: errTooLong}
		}
		c.forget()
	case &m.Data[0] == &c.Into[0]: // it was received there
	default:
		copy(c.Into, m.Data)
		c.place(c.Into)
	}
}

// place has the outputs be where the data of the answer is now: they are all of it, one behind the other.
func (c *Call) place(data []byte) {
	at := 0
	for i := range c.Request.Ops {
		op := &c.Request.Ops[i]
		end := at + len(op.Out)
		op.Out, at = data[at:end:end], end
	}
}

// forget leaves nothing of an answer that does not count: what fails later has no results of it.
func (c *Call) forget() {
	c.Reply = osdop.Reply{}
	for i := range c.Request.Ops {
		c.Request.Ops[i].Result, c.Request.Ops[i].Out = 0, nil
	}
}

func (c *Call) code() uint16 {
	if len(c.Request.Ops) == 0 {
		return 0
	}
	return c.Request.Ops[0].Code
}

// error is the error of a call that no OSD has seen.
func (c *Call) error(e *Engine, err error) *Error { return e.newError(c.code(), c.Request.Target, err) }

// doing is the Call of one Do.
type doing struct {
	Call
	ops  []osdop.Op
	done chan struct{}
}

func newDoing() any {
	d := &doing{done: make(chan struct{}, 1)}
	d.Done, d.Context = func(c *Call) { c.Context.(*doing).done <- struct{}{} }, d
	return d
}

// Do carries operations out, as r wants it, which has none, and waits for the answer. into is memory for its
// data (Call.Into), which the engine does not touch after Do has returned. The results and outputs are in
// ops; the outputs are valid until Reply.Release. Any goroutine but a core's.
func (e *Engine) Do(ctx context.Context, r osdop.Request, ops []osdop.Op, into []byte) (osdop.Reply, error) {
	d := e.doings.Get().(*doing)
	defer func() { d.clear(); e.doings.Put(d) }()
	d.ops = append(d.ops, ops...) // a copy: those of the caller can lie on its stack
	d.Request, d.Request.Ops, d.Into = r, d.ops, into
	if _, err := e.start(ctx, &d.Call, false); err != nil {
		return osdop.Reply{}, err
	}
	select {
	case <-d.done:
	case <-ctx.Done():
		d.Cancel(context.Cause(ctx))
		<-d.done
	}
	copy(ops, d.ops)
	return d.Reply, d.Err
}

// clear makes a doing ready for its next operation.
func (d *doing) clear() {
	clear(d.ops)
	d.ops, d.Request, d.Into, d.Reply, d.Err = d.ops[:0], osdop.Request{}, nil, osdop.Reply{}, nil
	d.ctx, d.e, d.op = nil, nil, machine.Op{}
}

var errTooLong = errors.Join(ErrMessage, errors.New("more data than was asked for"))
