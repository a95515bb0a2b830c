package machine

// Leaver is an operation, or a watch with its operations, that leaves a machine for the machine of another
// OSD.
type Leaver struct {
	Op    *Op
	Watch *Watch
}

// Home is the OSD whose machine adopts it, or Nobody.
func (l Leaver) Home() int32 {
	if l.Watch != nil {
		return l.Watch.at.osd
	}
	return l.Op.at.osd
}

// Leaving takes out the first Leaver. False: there is none.
func (m *Machine) Leaving() (l Leaver, ok bool) {
	if len(m.leaving) == 0 {
		return l, false
	}
	l = m.leaving[0]
	if m.leaving = m.leaving[1:]; len(m.leaving) == 0 {
		m.leaving = nil
	}
	return l, true
}

// Moves says whether there is a Leaver.
func (m *Machine) Moves() bool { return len(m.leaving) > 0 }

// depart takes an operation out that belongs to another machine. One for a watch takes the watch along.
func (m *Machine) depart(o *Op) {
	if w := o.watch; w != nil {
		w.at.osd = o.at.osd
		m.departWatch(w)
		return
	}
	m.leave(o)
	if o.Session = nil; !m.busy {
		o.TID = 0
	}
	m.leaving = append(m.leaving, Leaver{Op: o})
}

func (m *Machine) departWatch(w *Watch) {
	m.drop(w)
	w.session = nil
	m.leaving = append(m.leaving, Leaver{Watch: w})
}

// Adopt takes a Leaver of another machine, which has the same map. An operation that a map has moved keeps
// its id. One that has come to the wrong machine, or is sent elsewhere as another one, gets a new one.
func (m *Machine) Adopt(l Leaver) {
	o := l.Op
	switch {
	case l.Watch != nil:
		m.adoptWatch(l.Watch)
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
