package machine

// Home is the OSD whose machine adopts an operation that leaves, or Nobody. The operation that registers a
// watch stands for the watch.
func (o *Op) Home() int32 { return o.at.osd }

// Leaving takes out the first operation that leaves; nil: there is none.
func (m *Machine) Leaving() *Op {
	o := m.leaving.First()
	if o != nil {
		m.leaving.Remove(o)
	}
	return o
}

// Moves says whether an operation leaves.
func (m *Machine) Moves() bool { return m.leaving.First() != nil }

// depart takes an operation out that belongs to another machine. One for a watch takes the watch along.
func (m *Machine) depart(o *Op) {
	if o.watch != nil {
		m.departWatch(o.watch, o.at.osd)
		return
	}
	m.leave(o)
	if o.Session = nil; !m.busy {
		o.TID = 0
	}
	m.leaving.Push(o)
}

func (m *Machine) departWatch(w *Watch, osd int32) {
	m.drop(w)
	w.session, w.Reg.at.osd = nil, osd
	m.leaving.Push(&w.Reg)
}

// Adopt takes an operation that has left another machine, which has the same map. One that a map has moved
// keeps its id. One that has come to the wrong machine, or is sent elsewhere as another one, gets a new one.
func (m *Machine) Adopt(o *Op) {
	switch {
	case o.watch != nil:
		m.adoptWatch(o.watch)
		return
	case o.TID == 0:
		m.enter(o)
	default:
		m.insert(o)
	}
	if m.aim(o, o.at) {
		m.flush()
	}
}
