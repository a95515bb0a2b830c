package nodetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ringmsgr/ringmsgr/control"
)

// Received is one message of an Inbox.
type Received struct {
	Conn  *control.Conn
	TID   uint64
	Front string
}

// Inbox keeps the messages that a node received, and checks the order of the messages and events
// of each connection. All methods may be called by any goroutine.
type Inbox struct {
	mu      sync.Mutex
	got     []Received              // guarded by mu
	changed chan struct{}           // closed and replaced with every message; guarded by mu
	lives   map[*control.Conn]phase // guarded by mu
	errs    []error                 // guarded by mu
}

// phase is the part of its life that a connection is in, by its events.
type phase uint8

const (
	unheard phase = iota // no accept or connect event yet
	alive
	ended // by a reset event
)

// NewInbox makes an empty inbox.
func NewInbox() *Inbox {
	return &Inbox{changed: make(chan struct{}), lives: make(map[*control.Conn]phase)}
}

// Check returns an error if a message came before the accept or connect event
// of its connection, or anything behind its reset event. A connection to
// ourselves has no events.
func (b *Inbox) Check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.errs...)
}

// told notes an event or a message, and the phase that follows it.
func (b *Inbox) told(c *control.Conn, what string, next phase) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch now := b.lives[c]; {
	case now == ended:
		b.errs = append(b.errs, fmt.Errorf("nodetest: connection %d: %s behind its reset event", c.ID(), what))
	case now == unheard && next == unheard && !c.IsLoopback():
		b.errs = append(b.errs, fmt.Errorf("nodetest: connection %d: %s before its accept or connect event", c.ID(), what))
	case next != unheard:
		b.lives[c] = next
	}
}

// recorder is a dispatcher that notes every message and takes none.
func (b *Inbox) recorder() *control.Dispatcher {
	return &control.Dispatcher{
		Accept:  func(c *control.Conn, _ int, _ bool) { b.told(c, "accept event", alive) },
		Connect: func(c *control.Conn, _ int) { b.told(c, "connect event", alive) },
		Reset:   func(c *control.Conn, _ bool) { b.told(c, "reset event", ended) },
		Fast: func(c *control.Conn, m *control.Message) bool {
			b.told(c, "message", unheard)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.got = append(b.got, Received{c, m.TID, string(m.Front)})
			close(b.changed)
			b.changed = make(chan struct{})
			return false
		},
	}
}

// Messages are those received so far, in order.
func (b *Inbox) Messages() []Received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// TIDs are the transaction ids of the messages received so far, in order.
func (b *Inbox) TIDs() []uint64 {
	tids := []uint64{}
	for _, m := range b.Messages() {
		tids = append(tids, m.TID)
	}
	return tids
}

// Await waits until the transaction ids received are exactly these.
func (b *Inbox) Await(ctx context.Context, tids ...uint64) error {
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		got := b.TIDs()
		if slices.Equal(got, tids) || len(got) == 0 && len(tids) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("nodetest: received %v, want %v: %w", got, tids, context.Cause(ctx))
		}
	}
}
