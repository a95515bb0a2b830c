package machine

import (
	"syscall"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdmap"
	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Epoch is that of the newest map; 0: there is none.
func (m *Machine) Epoch() uint32 {
	if m.cur == nil {
		return 0
	}
	return m.cur.Epoch()
}

// Map takes the map that follows. skipped says that others were between it and the one before, which are not
// known: everything is sent again. Then all machines exchange what leaves them. Settle follows the last of
// several maps.
func (m *Machine) Map(next Map, skipped bool) {
	m.cur, m.busy = next, true
	m.last = m.end // later ids are higher than all that any machine has given until now
	if s := m.session; s != nil && next.Addr(m.osd) != s.Addr {
		m.close()
	}
	m.each(func(o *Op) {
		if skipped {
			o.sent = false
		}
		m.aim(o, locate(m.cur, o))
	})
	m.moveWatches(skipped)
}

// Settle ends a series of maps: operations that nothing holds are sent.
func (m *Machine) Settle() {
	m.busy = false
	m.flush()
}

// aim has an operation go to t. False: it is over, or has left.
func (m *Machine) aim(o *Op, t target) bool {
	switch {
	case m.cur == nil:
		if !m.asked {
			m.asked = true
			m.do(Action{What: Ask})
		}
		return true
	case !t.exists:
		return m.missing(o)
	case t.pool&osdmap.PoolEIO != 0:
		m.Fail(o, syscall.EIO)
		return false
	}
	if o.at.exists && (o.at.moves(&t) || o.at.full != t.full && o.flags&osdop.FullTry == 0) {
		o.sent = false
	}
	o.at = t
	if t.osd != m.osd {
		m.depart(o)
		return false
	}
	if m.session == nil && m.osd != Nobody {
		m.session = &Session{OSD: m.osd, Addr: m.cur.Addr(m.osd)}
		m.do(Action{What: Dial, Session: m.session})
	}
	o.Session = m.session
	return true
}

// missing decides about an operation whose pool is not in the newest map: the pool is deleted, or this map
// is too old. False: the operation is over, or has left.
func (m *Machine) missing(o *Op) bool {
	if o.at.exists || o.check > 0 && o.check <= m.cur.Epoch() {
		m.Fail(o, syscall.ENOENT)
		return false
	}
	if m.osd != Nobody {
		m.depart(o)
		return false
	}
	if o.check == 0 && !m.unknown {
		m.unknown = true
		for p := m.ops.first; p != nil; p = p.next { // one answer is for all that are here
			p.checking = !p.at.exists && p.check == 0
		}
		m.do(Action{What: Newest})
	}
	return true
}

// Newest takes the answer to the action of that name; epoch 0: there is none.
func (m *Machine) Newest(epoch uint32) {
	m.unknown = false
	if m.cur == nil {
		return
	}
	for o := m.ops.first; o != nil; o = o.next {
		if o.checking {
			o.checking, o.check = false, epoch
		}
	}
	m.each(func(o *Op) {
		if !o.at.exists {
			m.missing(o) // one that came while the question was under way asks again
		}
	})
	if epoch > m.cur.Epoch() {
		m.do(Action{What: Ask, Epoch: m.cur.Epoch() + 1})
	}
	m.flush()
}
