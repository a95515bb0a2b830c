package control

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
	"github.com/ringmsgr/ringmsgr/uring"
)

// A fault of an earlier socket can be heard of when the session has the next one
// already: it is no fault of that, and what was received since is not forgotten.
func TestAFaultOfAnEarlierSocketIsNone(t *testing.T) {
	m, err := New(Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "1"}, InitialBackoff: time.Minute, MaxBackoff: time.Minute,
		Plane: dataplane.Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.newConn(m.pickCore(), LosslessPeer())
	c.state = StateReady
	c.reflect(dataplane.Mirror{InSeq: 10, Notes: 3})
	for n := uint64(1); n <= 3; n++ {
		c.heard(note{conn: c, n: n, kind: noteFault, err: errors.New("broken"), mirror: dataplane.Mirror{InSeq: 5, Notes: n}})
	}
	if c.state != StateReady || c.mirror.InSeq != 10 {
		t.Errorf("state %v, received up to %d", c.state, c.mirror.InSeq)
	}
	c.heard(note{conn: c, n: 4, kind: noteFault, err: errors.New("broken"), mirror: dataplane.Mirror{InSeq: 12, Notes: 4}})
	if c.state == StateReady || c.mirror.InSeq != 12 {
		t.Errorf("behind its own fault: state %v, received up to %d", c.state, c.mirror.InSeq)
	}
}

// What waits for a goroutine when the session ends is of no session any more.
func TestMessagesOfAnEndedSessionAreNotDispatched(t *testing.T) {
	m, c := new(Messenger), new(Conn)
	var got []uint64
	began, goOn := make(chan struct{}), make(chan struct{})
	d := &Dispatcher{Queued: func(_ *Conn, msg *Message) {
		got = append(got, msg.TID)
		if msg.TID == 1 {
			close(began)
			<-goOn
		}
	}}
	freed := 0
	push := func(tid uint64) {
		msg := NewMessage(1, nil, nil)
		msg.TID, msg.Free = tid, func(*Message) { freed++ }
		c.queue.push(m, c, d, msg)
	}
	push(1)
	<-began
	push(2)
	push(3)
	c.queue.discard(c)
	push(4)
	if freed != 2 {
		t.Errorf("%d messages were let go", freed)
	}
	close(goOn)
	<-c.queue.drained()
	if len(got) != 2 || got[0] != 1 || got[1] != 4 || freed != 4 {
		t.Errorf("dispatched %v, %d let go", got, freed)
	}
}
