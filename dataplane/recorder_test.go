package dataplane

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// recorder is an Owner that notes what it is told. All of it may be read by any
// goroutine.
type recorder struct {
	mu        sync.Mutex
	messages  []received
	events    []string // everything but messages, in order
	faults    []error
	snapshots []Snapshot
	happened  []any
	acks      []Timestamp
	outs      []uint64 // numbers of notifications
	notice    chan struct{}

	// Called on the core, if set.
	onMessage func(h *Handler, m *Message)
	onFault   func(n uint64, err error, m Snapshot)
	onMoving  func()
	onMoved   func(h *Handler)
	// discard keeps nothing of messages.
	discard bool
}

// received is a copy of a message.
type received struct {
	typ, priority       uint16
	tid, seq            uint64
	front, middle, data []byte
}

func copyOf(m *Message) received {
	return received{m.Type, m.Priority, m.TID, m.Seq(), bytes.Clone(m.Front), bytes.Clone(m.Middle), bytes.Clone(m.Data)}
}

func (r *recorder) Dispatch(h *Handler, m *Message) {
	if r.onMessage != nil {
		r.onMessage(h, m)
	}
	if r.discard {
		return
	}
	r.mu.Lock()
	r.messages = append(r.messages, copyOf(m))
	r.mu.Unlock()
	r.told()
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
	r.mu.Unlock()
	r.told()
}

// told wakes whoever waits in until.
func (r *recorder) told() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notice != nil {
		close(r.notice)
		r.notice = nil
	}
}

func (r *recorder) Faulted(n uint64, err error, m Snapshot) {
	r.mu.Lock()
	r.faults, r.snapshots, r.outs = append(r.faults, err), append(r.snapshots, m), append(r.outs, n)
	r.mu.Unlock()
	r.note("fault")
	if r.onFault != nil {
		r.onFault(n, err, m)
	}
}

func (r *recorder) Queued(n uint64) {
	r.mu.Lock()
	r.outs = append(r.outs, n)
	r.mu.Unlock()
	r.note("queued")
}

func (r *recorder) Moving(_ *Handler, to *loop.Core) {
	r.note("moving to %d", to.ID())
	if r.onMoving != nil {
		r.onMoving()
	}
}

func (r *recorder) Moved(h *Handler, from *loop.Core, ev MoveCause) {
	r.note("moved from %d accepted=%v replace=%v", from.ID(), ev.Accepted, ev.Replace)
	if r.onMoved != nil {
		r.onMoved(h)
	}
}

func (r *recorder) Happened(_ *Handler, what any) {
	r.mu.Lock()
	r.happened = append(r.happened, what)
	r.mu.Unlock()
	r.note("happened %v", what)
}

func (r *recorder) KeepaliveAck(_ *Handler, sent Timestamp) {
	r.mu.Lock()
	r.acks = append(r.acks, sent)
	r.mu.Unlock()
	r.told()
}

// list is a snapshot of the messages.
func (r *recorder) list() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.messages...)
}

// fault is the last fault, nil if there was none.
func (r *recorder) fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) == 0 {
		return nil
	}
	return r.faults[len(r.faults)-1]
}

// log is a snapshot of the events.
func (r *recorder) log() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.events...)
}
