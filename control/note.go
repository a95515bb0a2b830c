package control

import (
	"sync"

	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// note is what a handler tells the protocol: numbered, as notes of one
// handler can come from different cores.
type note struct {
	conn   *Conn
	n      uint64
	kind   noteKind
	err    error
	mirror dataplane.Mirror
}

type noteKind uint8

const (
	noteFault noteKind = iota
	noteQueued
)

// notebook brings notes from the cores to one goroutine of the messenger.
type notebook struct {
	mu    sync.Mutex
	notes []note        // guarded by mu
	more  chan struct{} // capacity 1
}

// note is called by cores; it does not block.
func (m *Messenger) note(n note) {
	b := &m.notes
	b.mu.Lock()
	b.notes = append(b.notes, n)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// readNotes runs until the messenger is shut down.
func (m *Messenger) readNotes() {
	defer close(m.notesDone)
	b := &m.notes
	for {
		select {
		case <-b.more:
		case <-m.stopNotes:
			return
		}
		b.mu.Lock()
		notes := b.notes
		b.notes = nil
		b.mu.Unlock()
		for i := range notes {
			m.mu.Lock()
			notes[i].conn.heard(notes[i])
			m.mu.Unlock()
		}
	}
}

// heard runs a note in its turn. The lock is held.
func (c *Conn) heard(n note) {
	if n.n != c.heardIn+1 {
		c.earlyNotes = append(c.earlyNotes, n)
		return
	}
	for {
		c.heardIn = n.n
		c.run(n)
		found := false
		for i, e := range c.earlyNotes {
			if e.n == c.heardIn+1 {
				n, found = e, true
				c.earlyNotes = append(c.earlyNotes[:i], c.earlyNotes[i+1:]...)
				break
			}
		}
		if !found {
			return
		}
	}
}

// reflect adopts what the handler answered to Delay. The lock is held.
func (c *Conn) reflect(mirror dataplane.Mirror) {
	c.mirror, c.covered = mirror, mirror.Notes
}

func (c *Conn) run(n note) {
	switch n.kind {
	case noteFault:
		if n.n <= c.covered {
			return // of a socket before the present one
		}
		c.mirror = n.mirror
		if c.state == StateReady {
			c.fault(StateReady, &Error{Stage: StageSession, Peer: c.peerText(), State: c.state, Err: n.err})
		}
	case noteQueued:
		c.mirror.Queued = true
		if c.state == StateStandby && !c.policy.Server && !c.frozen {
			c.connect(evQueued)
		}
	}
}
