package machine

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/control/cluster/internal/osdop"
)

// Watch is an interest in an object that lasts: of a watcher, or of a notifier whose notify is not complete.
// Its user sets the first fields, and has it told by actions (Tell): without an error when the watch is
// registered, or the notify is complete, with one when it is over.
type Watch struct {
	Object    osdop.Object
	Notify    bool
	User      any
	PingEvery time.Duration // how often the OSD is asked whether it has the watch; at most once a tick
	NotifyID  uint64        // that the OSD has given the notify; set by the user with the answer to the operation

	// The machine sets the other fields.

	Cookie    uint64    // the number of the watch, on the wire and in the machine
	Confirmed time.Time // when the OSD was last known to have it
	Reg       Op        // registers the watch, or notifies

	gen        uint32 // of the last registration
	registered bool
	over       bool
	at         target
	session    *Session
	ping       Op
	pinged     time.Time // or registered
}

// purpose is the task of an operation for a watch: the kind of a WATCH, or another; 0: the operation is for
// none.
type purpose uint8

const (
	notifying    purpose = 1
	registering          = purpose(osdop.WatchBegin)
	reconnecting         = purpose(osdop.WatchReconnect)
	pinging              = purpose(osdop.WatchPing)
)

// Serves says for which watch an operation is, as which kind of WATCH, and of which generation; nil: for
// none.
func (o *Op) Serves() (w *Watch, kind uint8, gen uint32) {
	if o.watch == nil {
		return nil, 0, 0
	}
	return o.watch, uint8(o.purpose), o.watch.gen
}

// Watch takes a watch.
func (m *Machine) Watch(w *Watch) {
	w.Cookie = m.ids.cookies.Add(1)
	m.adoptWatch(w)
}

// adoptWatch takes a watch, of a machine that does not have it any more, too.
func (m *Machine) adoptWatch(w *Watch) {
	if !w.over {
		m.watches = append(m.watches, w)
		m.register(w)
	}
}

// register has the OSD know of a watch, by a new operation. One that knew of it is told that it goes on.
func (m *Machine) register(w *Watch) {
	m.Cancel(&w.Reg)
	m.Cancel(&w.ping)
	p, flags := registering, osdop.FlagWrite
	switch {
	case w.Notify:
		p, flags = notifying, osdop.FlagRead
	case w.registered:
		w.gen++
		p = reconnecting
	}
	// Where the cluster is full an OSD that hears nothing would forget the watch: none of its operations waits.
	w.Reg = Op{Object: w.Object, Flags: flags | osdop.FullTry, User: w.User, watch: w, purpose: p, seen: w.Reg.Seen()}
	w.pinged = m.now
	Aim(m.cur, &w.Reg)
	m.Submit(&w.Reg)
	if !w.over {
		w.at, w.session = w.Reg.at, w.Reg.Session
	}
}

// Forget ends a watch without an action.
func (m *Machine) Forget(w *Watch) {
	if w.over {
		return
	}
	w.over = true
	m.drop(w)
}

// drop takes a watch out, with its operations.
func (m *Machine) drop(w *Watch) {
	m.watches = slices.DeleteFunc(m.watches, func(v *Watch) bool { return v == w })
	m.Cancel(&w.Reg)
	m.Cancel(&w.ping)
}

// Lose ends a watch, and tells its user why.
func (m *Machine) Lose(w *Watch, err error) {
	m.Forget(w)
	m.do(Action{What: Tell, Watch: w, Err: err})
}

// Lookup is the watch, or notify, of an event on a session; nil: it is over, elsewhere, or never was.
func (m *Machine) Lookup(s *Session, cookie uint64, notify bool) *Watch {
	for _, w := range m.watches {
		if w.Cookie == cookie && w.Notify == notify && w.session == s {
			return w
		}
	}
	return nil
}

// served ends an operation for a watch, by err.
func (m *Machine) served(o *Op, err error) {
	w := o.watch
	switch {
	case w.over:
	case err != nil:
		forgotten := errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.ENOENT) && m.cur.Pool(w.Object.Pool) != nil
		if w.registered && forgotten {
			err = syscall.ENOTCONN
		}
		m.Lose(w, err)
	case o.purpose != notifying:
		if !w.registered {
			m.do(Action{What: Tell, Watch: w})
		}
		w.registered, w.Confirmed = true, o.Since
	}
}

// moveWatches registers the watches again whose groups begin a new interval.
func (m *Machine) moveWatches(skipped bool) {
	for _, w := range slices.Clone(m.watches) {
		if w.over {
			continue
		}
		probe := Op{target: w.Object, flags: w.Reg.Flags}
		t := locate(m.cur, &probe)
		switch {
		case !t.exists && w.Reg.Active: // it waits for the pool
		case !t.exists:
			m.Lose(w, syscall.ENOENT)
		case t.osd != m.osd:
			m.departWatch(w, t.osd)
		case skipped || !w.at.exists || w.at.begins(&t) || w.session == nil || w.session.state == closed:
			m.register(w)
		}
	}
}

// disturb registers the watches of a session that was lost.
func (m *Machine) disturb(s *Session) {
	for _, w := range slices.Clone(m.watches) {
		if !w.over && w.session == s {
			m.register(w)
		}
	}
}

// pingWatches asks the OSDs whether they still have our watches.
func (m *Machine) pingWatches() {
	for _, w := range slices.Clone(m.watches) {
		early := m.now.Sub(w.pinged) < w.PingEvery-time.Second/2 // ticks do not come to the second
		if !w.registered || w.Reg.Active || w.ping.Active || early {
			continue
		}
		w.pinged = m.now
		w.ping = Op{Object: w.Object, Flags: w.Reg.Flags, User: w.User, watch: w, purpose: pinging}
		Aim(m.cur, &w.ping)
		m.Submit(&w.ping)
		if !w.ping.sent {
			m.Cancel(&w.ping)
		}
	}
}
