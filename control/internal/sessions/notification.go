package sessions

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// notification is a notification of a handler to the protocol. It has a number, as the
// notifications of one handler can come from different cores.
type notification struct {
	conn     *Conn
	n        uint64
	kind     notificationKind
	err      error
	snapshot dataplane.Snapshot
	at       time.Time // when it was read
}

type notificationKind uint8

const (
	notifyFault notificationKind = iota
	notifyQueued
)

// notificationQueue brings notifications from the cores to one goroutine of the messenger.
type notificationQueue struct {
	mu    sync.Mutex
	queue []notification // guarded by mu
	more  chan struct{}  // capacity 1
	stop  chan struct{}  // closed by Close
	done  chan struct{}  // closed when readNotifications has ended
}

func newNotificationQueue() notificationQueue {
	return notificationQueue{more: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// notify is called by cores; it does not block.
func (m *Manager) notify(n notification) {
	b := &m.notifications
	b.mu.Lock()
	b.queue = append(b.queue, n)
	b.mu.Unlock()
	b.wake()
}

// wake has readNotifications look for notifications. It does not block.
func (b *notificationQueue) wake() {
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// The events of the machine for the notifications.

// readNotifications runs until the Manager is closed.
func (m *Manager) readNotifications() {
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
			m.lock()
			notes[i].conn.s.notifiedLocked(notes[i])
			m.unlock()
		}
		if !m.marked.empty() {
			m.lock() // closes them
			m.unlock()
		}
	}
}

// notifiedLocked handles a notification, once all with lower numbers are handled.
func (r *runner) notifiedLocked(n notification) {
	for ok := r.notifications.Arrive(n.n, n); ok; n, ok = r.notifications.Next() {
		r.handleLocked(n)
	}
}

func (r *runner) handleLocked(n notification) {
	c := r.c
	switch n.kind {
	case notifyFault:
		r.seen = n.at
		useful := n.snapshot.Useful || n.at.Sub(r.opened) >= c.m.cfg.Backoff.Max
		if !useful {
			c.m.cameToNothingLocked(c.shown.info, n.at)
		}
		r.stepLocked(session.Lost{Notification: n.n, IO: snapshot(n.snapshot), Err: lossOf(n.err), Useful: useful})
	case notifyQueued:
		r.stepLocked(session.Queued{})
	}
}

// lossOf is why a socket was lost, as the machines have it.
func lossOf(err error) error {
	if errors.Is(err, dataplane.ErrCloseReceived) {
		return fmt.Errorf("%w (%w)", session.ErrClosed, err)
	}
	return err
}

// Faulted has the session hear that its socket is lost; the User of the connection passes
// it on (dataplane.Owner). On its core; it does not wait.
func (c *Conn) Faulted(n uint64, err error, snap dataplane.Snapshot) {
	c.m.notify(notification{conn: c, n: n, err: err, snapshot: snap, kind: notifyFault})
}

// Queued tells the session that there is a message to send, like Faulted.
func (c *Conn) Queued(n uint64) { c.m.notify(notification{conn: c, n: n, kind: notifyQueued}) }
