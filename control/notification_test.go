package control

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// noteMessenger is a messenger whose notes the test makes, under its lock.
func noteMessenger(t *testing.T) *Messenger {
	t.Helper()
	m, err := New(Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "1"}, InitialBackoff: time.Minute, MaxBackoff: time.Minute,
		Plane: dataplane.Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}

// A session on which nothing moves is of use if it lives for as long as the
// longest pause: it is dialled at once, as often as that. One that lives for less
// is dialled at once the first time only.
func TestASessionThatLivesLongIsOfUse(t *testing.T) {
	m := noteMessenger(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := LosslessClient()
	c := m.newConn(m.pickCore(), &p, m.newSession(&p, session.Peer{Target: wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("192.0.2.1:6800")}}))
	for i, one := range []struct {
		lived time.Duration
		want  State
	}{
		{time.Minute, StateConnecting}, {time.Minute, StateConnecting}, {0, StateConnecting}, {time.Minute, StateConnecting},
		{time.Minute - 1, StateConnecting}, {time.Minute - 1, StateWait},
	} {
		c.s.State, c.s.opened = StateReady, time.Unix(1000, 0)
		n := uint64(i + 1)
		c.s.notified(notification{
			conn: c, n: n, kind: notifyFault, err: errors.New("broken"), at: c.s.opened.Add(one.lived), snapshot: dataplane.Snapshot{Notifications: n},
		})
		if c.s.State != one.want {
			t.Errorf("loss %d, lived for %v: state %v, want %v", n, one.lived, c.s.State, one.want)
		}
	}
}

// A fault of an earlier socket can be heard of when the session has the next one
// already: it is no fault of that, and what was received since is not forgotten.
func TestAFaultOfAnEarlierSocketIsNone(t *testing.T) {
	m := noteMessenger(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := LosslessPeer()
	c := m.newConn(m.pickCore(), &p, m.newSession(&p, session.Peer{Target: wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("192.0.2.1:6800")}}))
	c.s.State = StateConnecting
	c.s.step(session.Authenticated{IO: session.Snapshot{InSeq: 10, Notifications: 3}}) // its handler has told three times
	c.s.State = StateReady
	for n := uint64(1); n <= 3; n++ {
		c.s.notified(notification{conn: c, n: n, kind: notifyFault, err: errors.New("broken"), snapshot: dataplane.Snapshot{InSeq: 5, Notifications: n}})
	}
	if c.s.State != StateReady || c.s.IO.InSeq != 10 {
		t.Errorf("state %v, received up to %d", c.s.State, c.s.IO.InSeq)
	}
	c.s.notified(notification{conn: c, n: 4, kind: notifyFault, err: errors.New("broken"), snapshot: dataplane.Snapshot{InSeq: 12, Notifications: 4}})
	if c.s.State == StateReady || c.s.IO.InSeq != 12 {
		t.Errorf("behind its own fault: state %v, received up to %d", c.s.State, c.s.IO.InSeq)
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
