package machine

import (
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Wait names the condition for which an operation waits, in words that follow "for 5s". The text has the
// remedy in parentheses.
type Wait string

// The conditions.
const (
	WaitNothing  Wait = ""
	WaitReply    Wait = "the OSD did not answer"
	WaitMap      Wait = "no monitor has sent an osdmap"
	WaitPool     Wait = "no map has the pool, and no monitor says that it does not exist"
	WaitReads    Wait = "reads are paused (ceph osd unset pause)"
	WaitWrites   Wait = "writes are paused (ceph osd unset pause)"
	WaitFull     Wait = "the cluster is full (add OSDs, or remove objects)"
	WaitPoolFull Wait = "the pool is full (add OSDs, or remove objects)"
	WaitQuota    Wait = "the pool has reached its quota (ceph osd pool set-quota, or remove objects)"
	WaitLater    Wait = "the OSD had it come again (EAGAIN)"
	WaitPrimary  Wait = "no OSD that is up serves the placement group (ceph osd tree)"
	WaitSession  Wait = "the OSD at %v is not reached"
	WaitQueue    Wait = "the queue of the connection was full"
	WaitBackoff  Wait = "the OSD asked to hold the object back (backoff)"
	WaitBehind   Wait = "an earlier operation on the object waited"
)

// paused is the condition of the map that holds an operation back.
func (m *Machine) paused(o *Op) Wait {
	switch flags, pool := m.cur.Flags(), o.at.pool; {
	case o.flags&osdop.FlagRead != 0 && flags&osdmap.PauseReads != 0:
		return WaitReads
	case o.flags&osdop.FlagWrite == 0:
		return WaitNothing
	case flags&osdmap.PauseWrites != 0 && (o.purpose != pinging || flags&osdmap.PauseReads != 0):
		return WaitWrites
	case o.mayExceed():
		return WaitNothing
	case flags&osdmap.Full != 0:
		return WaitFull
	case pool&osdmap.PoolFull == 0:
		return WaitNothing
	case pool&osdmap.PoolQuota != 0:
		return WaitQuota
	}
	return WaitPoolFull
}

// mayExceed says that the operation is sent though something is full.
func (o *Op) mayExceed() bool { return o.flags&(osdop.FullTry|osdop.FullForce) != 0 }

// passes says that the operation does not wait behind a write that waits as something is full.
func (o *Op) passes() bool { return o.mayExceed() || o.flags&(osdop.FlagWrite|osdop.RWOrdered) == 0 }

// why is the condition that holds an operation back, apart from others on its object.
func (m *Machine) why(o *Op) Wait {
	switch {
	case m.cur == nil:
		return WaitMap
	case !o.at.exists:
		return WaitPool
	}
	if w := m.paused(o); w != WaitNothing {
		return w
	}
	s := o.Session
	switch {
	case o.again:
		return WaitLater
	case s == nil:
		return WaitPrimary
	case s.state != up:
		return WaitSession
	case s.Full:
		return WaitQueue
	case slices.ContainsFunc(s.backoffs, func(b osdop.Backoff) bool { return covers(&b, o) }):
		return WaitBackoff
	}
	return WaitNothing
}

// hold is what is known of an object of which an operation waits.
type hold struct {
	full bool // the last one that does not wait behind another waits as something is full
	more bool // others wait, too, or did
}

// try sends an operation, unless something holds it. All others are as the last flush left them.
func (m *Machine) try(o *Op) {
	if m.busy {
		return
	}
	h, held := m.held[o.Object]
	o.wait = WaitBehind
	if !held || h.full && o.passes() || o.purpose == pinging { // the OSD has the watch, so that a ping has no order
		o.wait = m.why(o)
		h.full = o.wait == WaitFull || o.wait == WaitPoolFull || o.wait == WaitQuota
	}
	if o.wait != WaitNothing {
		m.held[o.Object] = hold{h.full, held}
		return
	}
	o.Attempt++
	o.sent, o.wait = true, WaitReply
	m.do(Action{What: Send, Op: o, Session: o.Session})
}

// flush sends all operations that nothing holds any more, in their order.
func (m *Machine) flush() {
	if m.busy {
		return
	}
	if len(m.held) > mostSpare { // cleared it would keep its memory
		m.held = map[osdop.Object]hold{}
	}
	clear(m.held)
	for o := m.ops.first; o != nil; o = o.next {
		if !o.sent {
			m.try(o)
		}
	}
}

// release sends the operations on an object that waited behind one which has left. It looks at none behind the
// one that holds the object in its place.
func (m *Machine) release(object osdop.Object) {
	was, held := m.held[object]
	if !held || m.busy {
		return
	}
	delete(m.held, object)
	for o := m.ops.first; o != nil && was.more; o = o.next {
		if o.sent || o.Object != object {
			continue
		}
		m.try(o)
		if h, held := m.held[object]; held && h.full == was.full {
			m.held[object] = was
			return
		}
	}
}

// Status says what an operation waits for, also in words, and on which OSD; -1: none.
func (o *Op) Status() (w Wait, text string, osd int32) {
	text, osd = string(o.wait), Nobody
	if o.Session != nil {
		osd = o.Session.OSD
	}
	if o.wait == WaitSession {
		text = fmt.Sprintf(text, o.Session.Addr)
	}
	return o.wait, text, osd
}
