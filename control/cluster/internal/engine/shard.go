package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/engine/machine"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// shard has the operations of one OSD, or those that no OSD has now.
type shard struct {
	e    *Engine
	in   atomic.Pointer[Call]         // the pushed calls, the last one first
	told atomic.Bool                  // the core, or a caller, is about to take them
	task loop.Task                    // takes them
	conn atomic.Pointer[control.Conn] // on whose core; nil: none is ready

	// mu guards all that follows, and the calls and watches whose home the shard is.
	mu      sync.Mutex
	m       *machine.Machine
	link    *link        // nil: there is none
	ended   machine.Line // to be concluded when the lock is free
	current *control.Message
	answers *Call // that current answers
}

// submit hands a call that has its room to the shard of its OSD. If the map has changed meanwhile, it brings
// the call to its new shard before it returns.
func (e *Engine) submit(c *Call) {
	v := e.view.Load()
	for v == e.changing {
		e.moving.Lock() // waits until the new map is there
		v = e.view.Load()
		e.moving.Unlock()
	}
	s := e.shard(machine.Aim(v.known(), &c.op))
	c.home.Store(s)
	for {
		c.next = s.in.Load()
		if s.in.CompareAndSwap(c.next, c) {
			break
		}
	}
	switch {
	case e.view.Load() != v, e.over.Load(): // after Close the core may have ended that was told
		e.settle(s)
	case s.told.Load() || !s.told.CompareAndSwap(false, true):
	default:
		s.tell()
	}
}

// tell has the pushed calls taken: by the core of the connection, or without one by the caller.
func (s *shard) tell() {
	if conn := s.conn.Load(); conn != nil {
		conn.Post(&s.task)
		return
	}
	s.take()
}

func (s *shard) take() {
	s.told.Store(false)
	s.mu.Lock()
	s.takeLocked()
	s.unlock()
}

// takeLocked submits the pushed calls, in their order.
func (s *shard) takeLocked() {
	var first *Call
	for c := s.in.Swap(nil); c != nil; {
		next := c.next
		c.next = first
		first, c = c, next
	}
	for c := first; c != nil; {
		next := c.next
		c.next, c.running = nil, true
		cause := c.cause.Load()
		if s.e.over.Load() {
			cause = &ErrClosed
		}
		if cause == nil {
			s.m.Submit(&c.op)
		} else {
			c.Err = c.error(s.e, *cause)
			s.endLocked(c)
		}
		c = next
	}
}

// lock locks the shard that is the home of a call or a watch; nil: it has none yet.
func lock(home *atomic.Pointer[shard]) *shard {
	for {
		s := home.Load()
		if s == nil {
			return nil
		}
		s.mu.Lock()
		if home.Load() == s {
			return s
		}
		s.mu.Unlock()
	}
}

// rest has the actions that follow once shards are unlocked.
type rest struct {
	ended machine.Line // to be concluded
	moves []*shard     // which calls or watches leave
}

// unlock carries out the actions of the machine, frees the lock, and concludes the ended calls.
func (s *shard) unlock() {
	var r rest
	r.unlock(s)
	s.e.finish(&r)
}

func (r *rest) unlock(s *shard) {
	s.actAllLocked()
	r.ended.Join(&s.ended)
	if s.m.Moves() {
		r.moves = append(r.moves, s)
	}
	s.mu.Unlock()
}

// finish does the rest, without a lock.
func (e *Engine) finish(r *rest) {
	for _, s := range r.moves {
		e.settle(s)
	}
	conclude(&r.ended)
}

// settle has a shard take its pushed calls, and brings the calls and watches that leave it to their new
// shards.
func (e *Engine) settle(s *shard) {
	var r rest
	e.moving.Lock()
	s.mu.Lock()
	s.takeLocked()
	s.actAllLocked()
	e.bringLocked(s, &r)
	r.unlock(s)
	e.moving.Unlock()
	e.finish(&r)
}

// bringLocked has other shards adopt the calls and watches that leave s. The caller holds moving, and s, or
// all shards.
func (e *Engine) bringLocked(s *shard, r *rest) {
	for o := s.m.Leaving(); o != nil; o = s.m.Leaving() {
		to := e.shardLocked(o.Home())
		if !e.whole {
			to.mu.Lock()
		}
		to.adoptLocked(o)
		if !e.whole {
			r.unlock(to)
		}
	}
}

func (s *shard) adoptLocked(o *machine.Op) {
	switch u := o.User.(type) {
	case *Watch:
		u.home.Store(s)
	case *Call:
		u.home.Store(s)
	}
	s.m.Adopt(o)
}

// togetherLocked calls f while all shards are locked, have taken the pushed calls, and have all calls that
// belong to them. Submissions wait meanwhile. Then all go by the map that is the newest. The caller holds
// moving.
func (e *Engine) togetherLocked(f func()) (r rest) {
	e.view.Store(e.changing)
	for _, s := range e.shards {
		s.mu.Lock()
	}
	e.whole = true
	for _, s := range e.shards {
		s.takeLocked()
		s.actAllLocked()
	}
	e.exchangeLocked()
	f()
	e.whole = false
	e.view.Store(e.cur)
	for _, s := range e.shards {
		r.unlock(s)
	}
	return r
}

// exchangeLocked brings the calls and watches that leave a shard to their new shards, while all are locked.
func (e *Engine) exchangeLocked() {
	for i := 0; i < len(e.shards); i++ {
		e.bringLocked(e.shards[i], nil)
	}
	for _, s := range e.shards {
		s.actAllLocked()
	}
}

// shard is that of an OSD.
func (e *Engine) shard(osd int32) *shard {
	if slots := *e.slots.Load(); int(osd+1) < len(slots) {
		if s := slots[osd+1].Load(); s != nil {
			return s
		}
	}
	e.moving.Lock()
	defer e.moving.Unlock()
	return e.shardLocked(osd)
}

// shardLocked is shard for a caller that holds moving. It makes the shard if there is none.
func (e *Engine) shardLocked(osd int32) *shard {
	i, slots := int(osd+1), *e.slots.Load()
	if i >= len(slots) {
		more := make([]atomic.Pointer[shard], 2*i+1)
		for j := range slots {
			more[j].Store(slots[j].Load())
		}
		slots = more
		e.slots.Store(&slots)
	}
	s := slots[i].Load()
	if s == nil {
		s = &shard{e: e, m: machine.New(osd, &e.ids, e.cur.known(), e.now())}
		s.task.Run = func(*loop.Core) { s.take() }
		if e.whole {
			s.mu.Lock()
		}
		e.shards = append(e.shards, s)
		slots[i].Store(s)
	}
	return s
}

// all are the shards that there are.
func (e *Engine) all() []*shard {
	e.moving.Lock()
	defer e.moving.Unlock()
	return e.shards
}

func (s *shard) actAllLocked() {
	for actions := s.m.Take(); len(actions) > 0; actions = s.m.Take() {
		for i := range actions {
			s.actLocked(&actions[i])
		}
	}
}

func (s *shard) actLocked(a *machine.Action) {
	switch a.What {
	case machine.Dial:
		s.dialLocked(a.Session)
	case machine.HangUp:
		s.hangUpLocked()
	case machine.Send:
		s.sendLocked(a.Op)
	case machine.Finish:
		c := a.Op.User.(*Call)
		if a.Err != nil {
			refused := c == s.answers || verdict(a.Err) || errors.Is(a.Err, wire.ErrMalformed)
			x := s.errorLocked(&c.op, c.code(), c.since, a.Err, refused)
			if doubtful(a.Op, c == s.answers, a.Err) {
				x.Outcome = ErrUnknown
			}
			c.Err = x
		}
		if c == s.answers && len(s.current.Data) > 0 {
			c.message = s.current
		}
		s.endLocked(c)
	case machine.Ask:
		s.e.follow(a.Epoch)
	case machine.Newest:
		s.newestLocked()
	case machine.Tell:
		a.Watch.User.(*Watch).tellLocked(s, a.Err)
	case machine.Ping, machine.Ack:
		s.sendOtherLocked(a)
	}
}
