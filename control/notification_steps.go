package control

import (
	"errors"
	"fmt"

	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/session1"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// What the machine is told of a notification.

// readNotifications runs until the messenger is shut down.
func (m *Messenger) readNotifications() {
	b := &m.notifications
	defer close(b.done)
	for {
		select {
		case <-b.more:
		case <-b.stop:
			return
		}
		b.mu.Lock()
		notes := b.queue
		b.queue = nil
		b.mu.Unlock()
		now := m.cfg.Clock.Now()
		for i := range notes {
			notes[i].at = now
			m.mu.Lock()
			notes[i].conn.s.notified(notes[i])
			m.mu.Unlock()
		}
		if !m.mu.marked.empty() {
			m.mu.endMarked()
		}
	}
}

// notified handles a notification, once all with lower numbers are handled. The
// lock is held.
func (r *runner) notified(n notification) {
	for ok := r.notifications.Arrive(n.n, n); ok; n, ok = r.notifications.Next() {
		r.handle(n)
	}
}

func (r *runner) handle(n notification) {
	c := r.c
	switch n.kind {
	case notifyFault:
		r.seen = n.at
		useful := n.snapshot.Useful || n.at.Sub(r.opened) >= c.m.cfg.MaxBackoff
		if !useful {
			c.m.cameToNothing(c.shown.info, n.at)
		}
		r.step(session.Lost{Notification: n.n, IO: snapshot(n.snapshot), Err: lossOf(n.err), Useful: useful})
	case notifyQueued:
		r.step(session.Queued{})
	}
}

// lossOf is why a socket was lost, as the machines have it.
func lossOf(err error) error {
	if errors.Is(err, dataplane.ErrCloseReceived) {
		return fmt.Errorf("%w (%w)", session1.ErrClosed, err)
	}
	return err
}
