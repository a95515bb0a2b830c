package machine

import (
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Machine knows all operations of a client that are under way. The zero Machine is not ready: New makes one.
type Machine struct {
	LastTID uint64 // the last transaction id that was given

	cur      Map // nil: none yet
	now      time.Time
	first    *Op // all operations, in the order of their ids
	last     *Op
	byTID    map[uint64]*Op
	sessions map[int32]*Session
	order    []*Session            // the same, in the order in which they were made
	held     map[osdop.Object]held // objects of operations that wait, as of the last flush
	unknown  poolCheck             // of pools that no map has
	watches  []*Watch              // in the order in which they were made
	cookies  map[uint64]*Watch     // the same
	cookie   uint64                // the last one
	poll     time.Time             // when connections and maps were last looked after
	asked    bool                  // for the first map
	busy     bool                  // maps are being taken, or several operations end: nothing is sent
	stale    bool                  // a newer map may be there: a session was lost
	all      []*Op                 // scratch of each
	actions  []Action              // since the last Take
	spare    []Action              // what the last Take returned
}

// Op is an operation. Its submitter sets the first fields, and does not change them until it is over.
type Op struct {
	Object osdop.Object
	Flags  uint32 // osdop.FlagRead or FlagWrite, and those that concern the way
	User   any    // the submitter's

	prev, next *Op // in Machine.first
	tid        uint64
	attempt    int32 // the number of the last one that was sent; -1: none
	active     bool
	sent       bool // the last attempt stands; else it is sent as soon as nothing holds it
	again      bool // the OSD wants it later: at the next tick
	bounced    int  // how often an OSD sent it away
	wait       Wait // why it is not sent
	since      time.Time
	session    *Session // nil: nobody has it now
	flags      uint32   // with those of a redirect, without those that EAGAIN takes away
	target     osdop.Object
	at         target
	check      uint32 // the map in which a missing pool must be; 0: not known
	checking   bool   // it is asked for
	watch      *Watch // that it serves; nil: the submitter's own
	purpose    purpose
}

// What is to be done.
type What uint8

// The kinds of actions.
const (
	Dial   What = iota // connect Session to its Addr
	HangUp             // close the connection of Session, which is over
	Send               // send Op on Session
	Finish             // Op is over: by Err, or by the answer that is being handled
	Ask                // ask the monitors for maps from Epoch on; 0: the newest
	Newest             // ask the monitors for the epoch of the newest map (Machine.Newest)
	Ping               // send MPing on Session
	Ack                // send Backoff on Session
	Tell               // tell the user of Watch: Err, or nil when it is registered
)

// Action is what the machine wants done. Actions are carried out in their order.
type Action struct {
	What    What
	Session *Session
	Op      *Op
	Watch   *Watch
	Epoch   uint32
	Backoff *osdop.Backoff
	Err     error
}

// New makes a machine.
func New(now time.Time) *Machine {
	return &Machine{
		now: now, poll: now, byTID: map[uint64]*Op{}, sessions: map[int32]*Session{}, held: map[osdop.Object]held{}, cookies: map[uint64]*Watch{},
	}
}

// Take returns the actions since the last Take. They are valid until the next.
func (m *Machine) Take() []Action {
	all := m.actions
	m.actions, m.spare = m.spare[:0], all
	return all
}

func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

// TID is the transaction id of an operation that was submitted.
func (o *Op) TID() uint64 { return o.tid }

// Attempt counts from 0; -1: the operation was never sent.
func (o *Op) Attempt() int32 { return o.attempt }

// Active says that the operation was submitted and is not over.
func (o *Op) Active() bool { return o.active }

// Next is the operation that was submitted, or got its id, behind o.
func (o *Op) Next() *Op { return o.next }

// First is the oldest operation.
func (m *Machine) First() *Op { return m.first }

// Envelope is what the operation's message needs, for the attempt that is being sent.
func (m *Machine) Envelope(o *Op) osdop.Envelope {
	e := osdop.Envelope{
		Epoch: m.cur.Epoch(), PG: o.at.pg, Hash: o.at.hash, Shard: o.at.shard, Target: &o.at.object, Attempt: o.attempt, Flags: o.flags,
	}
	if o.attempt > 0 {
		e.Flags |= osdop.Retry
	}
	return e
}

// Submit takes an operation.
func (m *Machine) Submit(o *Op) {
	o.attempt, o.sent, o.again, o.bounced, o.session, o.at = -1, false, false, 0, nil, target{}
	o.flags, o.target, o.check, o.checking = o.Flags, o.Object, 0, false
	o.active, o.since = true, m.now
	m.enter(o)
	if m.retarget(o) {
		m.try(o)
	}
}

// enter gives an operation the next id, and the last place.
func (m *Machine) enter(o *Op) {
	m.LastTID++
	o.tid = m.LastTID
	o.prev, o.next = m.last, nil
	if m.last != nil {
		m.last.next = o
	} else {
		m.first = o
	}
	m.last = o
	m.byTID[o.tid] = o
}

// leave is the opposite of enter.
func (m *Machine) leave(o *Op) {
	delete(m.byTID, o.tid)
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		m.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		m.last = o.prev
	}
	o.prev, o.next = nil, nil
}

// Cancel ends an operation without an action. False: it is over already.
func (m *Machine) Cancel(o *Op) bool {
	if !o.active {
		return false
	}
	m.remove(o)
	return true
}

// Fail ends an operation, which cannot be sent, with err.
func (m *Machine) Fail(o *Op, err error) { m.finish(o, err) }

// remove takes an operation out. Others may have waited behind it.
func (m *Machine) remove(o *Op) {
	m.leave(o)
	o.active = false
	if !o.sent && len(m.held) > 0 {
		m.flush()
	}
}

// each calls f for all operations that there are, and that f has not ended meanwhile. Nothing is sent before the end.
func (m *Machine) each(f func(o *Op)) {
	m.busy = true
	m.all = m.all[:0]
	for o := m.first; o != nil; o = o.next {
		m.all = append(m.all, o)
	}
	for _, o := range m.all {
		if o.active {
			f(o)
		}
	}
	clear(m.all)
	m.busy = false
}

// finish ends an operation, by err or by the answer that is being handled.
func (m *Machine) finish(o *Op, err error) {
	m.remove(o)
	if o.watch != nil {
		m.served(o, err)
		return
	}
	m.do(Action{What: Finish, Op: o, Err: err})
}

// Close ends everything that is under way with err, and all sessions.
func (m *Machine) Close(err error) {
	for len(m.watches) > 0 {
		m.lose(m.watches[0], err)
	}
	m.each(func(o *Op) { m.finish(o, err) })
	for _, s := range m.order {
		s.state = closed
		m.do(Action{What: HangUp, Session: s})
	}
	m.order = nil
	clear(m.sessions)
}

// Errors of operations that the machine ends itself.
const (
	errNoEntity = syscall.ENOENT
	errIO       = syscall.EIO
	errLoop     = syscall.ELOOP
)

// Map is a map of one epoch.
type Map interface {
	Epoch() uint32
	Flags() uint32 // osdmap.Full and others
	Pool(id int64) (Pool, bool)
	// Place finds an object of a pool that exists.
	Place(o osdop.Object) Place
	// Addr is the address of an OSD; blank: it is down.
	Addr(osd int32) wire.Addr
}
