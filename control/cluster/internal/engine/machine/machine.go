package machine

import (
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Nobody is the OSD of a Machine that has the operations which no OSD has.
const Nobody = -1

// IDs are the numbers that the machines of a client give, each once. The zero IDs are ready. Any goroutine.
type IDs struct{ tids, cookies atomic.Uint64 }

// idBlock is how many transaction ids a machine takes at a time.
const idBlock = 1 << 10

// Machine knows the operations of a client that one OSD has, or is to have.
type Machine struct {
	osd       int32 // or Nobody
	ids       *IDs
	last, end uint64 // the last id that was given, of a block that ends at end
	cur       Map    // nil: none yet
	now       time.Time
	ops       Line // all operations, in the order in which they came
	byTID     map[uint64]*Op
	session   *Session              // nil: there is none
	held      map[osdop.Object]hold // objects of operations that wait, as of the last flush
	unknown   bool                  // monitors are asked which map is the newest, as none has a pool
	watches   []*Watch              // in the order in which they were made
	leaving   Line                  // of operations that go to other machines
	poll      time.Time             // when the connection and maps were last looked after
	asked     bool                  // for the first map
	busy      bool                  // maps are being taken, or several operations end: nothing is sent
	stale     bool                  // a newer map may be there: a session was lost
	all       []*Op                 // scratch of each
	actions   []Action              // since the last Take
	spare     []Action              // the result of the last Take
}

// Op is an operation. Its submitter sets the first fields, and does not change them until it is over.
type Op struct {
	Object osdop.Object
	Flags  uint32 // osdop.FlagRead or FlagWrite, and those that concern the way
	Pick   int    // a random number, which chooses among replicas, or Nearest
	User   any    // the submitter's

	// The machine sets the other fields.

	TID     uint64    // the transaction id, once it was submitted
	Active  bool      // it was submitted, and is not over
	Since   time.Time // when it was submitted
	Attempt int32     // the number of the last one that was sent; -1: none
	Session *Session  // the one that has it; nil: nobody has it now

	prev, next *Op    // in its Line
	sent       bool   // the last attempt stands; else it is sent as soon as nothing holds it
	again      bool   // the OSD wants it later: at the next tick
	bounced    int    // how often an OSD sent it away
	wait       Wait   // why it is not sent
	flags      uint32 // with those of a redirect, without those that EAGAIN takes away
	target     osdop.Object
	at         target
	aimed      uint32 // the epoch of at, if Aim has found it; 0: none
	check      uint32 // the map in which a missing pool must be; 0: not known
	checking   bool   // it is asked for
	watch      *Watch // that it serves; nil: the submitter's own
	purpose    purpose
	seen       bool // an OSD was sent an earlier operation of this purpose
}

// What is the kind of an action.
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

// Action is one step for the user of the machine, which carries actions out in their order.
type Action struct {
	What    What
	Session *Session
	Op      *Op
	Watch   *Watch
	Epoch   uint32
	Backoff *osdop.Backoff
	Err     error
}

// New makes the machine of an OSD, or of Nobody, which has cur by now; nil: there is no map yet. All machines
// of a client have ids in common.
func New(osd int32, ids *IDs, cur Map, now time.Time) *Machine {
	return &Machine{osd: osd, ids: ids, cur: cur, now: now, poll: now, byTID: map[uint64]*Op{}, held: map[osdop.Object]hold{}}
}

// mostSpare bounds the actions, and the objects of operations that wait, whose memory is used again.
const mostSpare = 1 << 10

// Take returns the actions since the last Take. They are valid until the next, which lets go of what they name.
func (m *Machine) Take() []Action {
	all := m.actions
	if clear(m.spare); cap(m.spare) > mostSpare {
		m.spare = nil
	}
	m.actions, m.spare = m.spare[:0], all
	return all
}

func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

// Seen says that an OSD may have carried it out, or may do so.
func (o *Op) Seen() bool { return o.seen || o.TID > 0 && o.Attempt >= 0 }

// First is the oldest operation.
func (m *Machine) First() *Op { return m.ops.first }

// Envelope has the fields of the operation's message, for the attempt that is being sent.
func (m *Machine) Envelope(o *Op) osdop.Envelope {
	e := osdop.Envelope{
		Epoch: m.cur.Epoch(), PG: o.at.PG, Hash: o.at.Hash, Shard: o.at.Shard,
		Target: &o.at.object, Attempt: o.Attempt, Flags: o.flags,
	}
	if o.Attempt > 0 {
		e.Flags |= osdop.Retry
	}
	return e
}

// Aim places an operation before it is submitted, by any map, and returns the OSD whose machine is to have
// it, or Nobody. It needs no Machine.
func Aim(cur Map, o *Op) int32 {
	o.flags, o.target, o.at, o.aimed = o.Flags, o.Object, nowhere, 0
	if o.at = locate(cur, o); cur != nil {
		o.aimed = cur.Epoch()
	}
	return o.at.osd
}

// Submit takes an operation. Aim has placed it.
func (m *Machine) Submit(o *Op) {
	t := o.at
	o.Attempt, o.bounced, o.Session, o.at, o.check, o.Since = -1, 0, nil, nowhere, 0, m.now
	o.Active, o.sent, o.again, o.checking, o.wait = true, false, false, false, WaitNothing
	m.enter(o)
	if o.aimed != m.Epoch() {
		t = locate(m.cur, o)
	}
	if m.aim(o, t) {
		m.try(o)
	}
}

// enter gives an operation the next id, and the last place.
func (m *Machine) enter(o *Op) {
	if m.last == m.end {
		m.end = m.ids.tids.Add(idBlock)
		m.last = m.end - idBlock
	}
	m.last++
	o.TID = m.last
	m.insert(o)
}

// insert puts an operation behind all others.
func (m *Machine) insert(o *Op) {
	m.ops.Push(o)
	m.byTID[o.TID] = o
}

// leave takes an operation out.
func (m *Machine) leave(o *Op) {
	delete(m.byTID, o.TID)
	m.ops.Remove(o)
}

// Cancel ends an operation without an action, unless it is over.
func (m *Machine) Cancel(o *Op) {
	switch {
	case !o.Active:
	case m.byTID[o.TID] == o:
		m.remove(o)
	default:
		m.leaving.Remove(o)
		o.Active = false
	}
}

// remove takes an operation out. Others may have waited behind it.
func (m *Machine) remove(o *Op) {
	m.leave(o)
	o.Active = false
	if !o.sent && o.wait != WaitBehind {
		m.release(o.Object)
	}
}

// each calls f for all operations that there are, and that f has not taken out meanwhile. Nothing is sent
// before the end.
func (m *Machine) each(f func(o *Op)) {
	busy := m.busy
	m.busy = true
	m.all = m.all[:0]
	for o := m.ops.first; o != nil; o = o.next {
		m.all = append(m.all, o)
	}
	for _, o := range m.all {
		if m.byTID[o.TID] == o {
			f(o)
		}
	}
	clear(m.all)
	m.busy = busy
}

// Fail ends an operation, by err; nil: by the answer that is being handled.
func (m *Machine) Fail(o *Op, err error) {
	m.remove(o)
	if o.watch != nil {
		m.served(o, err)
		return
	}
	m.do(Action{What: Finish, Op: o, Err: err})
}

// Close ends everything that is under way with err, and the session.
func (m *Machine) Close(err error) {
	for len(m.watches) > 0 {
		m.Lose(m.watches[0], err)
	}
	m.each(func(o *Op) { m.Fail(o, err) })
	if m.session != nil {
		m.close()
	}
}

// Map is a map of one epoch, which does not change. Any goroutine may ask it.
type Map interface {
	Epoch() uint32
	Flags() uint32              // osdmap.Full and others
	Pool(id int64) *osdmap.Pool // nil: there is none
	// Place finds an object of a pool that exists, and chooses among its OSDs by Op.Pick.
	Place(o osdop.Object, pick int) Place
	// Addr is the address of an OSD; blank: it is down.
	Addr(osd int32) wire.Addr
}
