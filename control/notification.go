package control

import (
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane"
)

// notification is a notification of a handler to the protocol. It has a number, as
// those of one handler can come from different cores.
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
	stop  chan struct{}  // closed by Shutdown
	done  chan struct{}  // closed when readNotifications has ended
}

func newNotificationQueue() notificationQueue {
	return notificationQueue{more: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// notify is called by cores; it does not block.
func (m *Messenger) notify(n notification) {
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
