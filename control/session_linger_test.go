package control_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// What was received when a connection ends.

// slowReader takes messages on the queue's goroutine, one at a time: each call
// waits until the test lets it go on.
type slowReader struct {
	goOn chan struct{}

	mu    sync.Mutex
	story []string
}

func newSlowReader() *slowReader { return &slowReader{goOn: make(chan struct{})} }

func (r *slowReader) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.story = append(r.story, what)
}

func (r *slowReader) tells(want ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Equal(r.story, want)
}

// next lets one call go on.
func (r *slowReader) next(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case r.goOn <- struct{}{}:
	case <-ctx.Done():
		t.Fatalf("nothing is dispatched behind %v", r)
	}
}

func (r *slowReader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.story)
}

func (r *slowReader) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		Queued: func(_ *control.Conn, m *control.Message) {
			r.add(fmt.Sprint(m.TID))
			<-r.goOn
		},
		Reset: func(*control.Conn, bool) { r.add("reset") },
	}
}

// overdue is a lossy server whose client has sent three messages and hung up,
// while the first one is being dispatched.
func overdue(t *testing.T, ctx context.Context, v variant, r *slowReader) (server *control.Messenger, conn *control.Conn) {
	t.Helper()
	server = startMessengerWith(t, v, r.dispatcher())
	addrs, err := server.Bind(v2(loopback(0).Addr(), 0))
	must(t, err)
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Client, ID: "2"}, Addr: wire.Addr{Nonce: 2, AddrPort: loopback(1)}, Rev0: v.rev0}, addrs[0])
	p.Establish(0, 1)
	for n := range uint64(3) {
		p.SendMessage(frame.MessageHeader{Seq: n + 1, TID: n + 1}, nil, nil, nil)
	}
	if p.Err() != nil {
		t.Fatal(p.Err())
	}
	eventually(t, ctx, "the messages", func() bool {
		for _, conn = range server.Conns() {
			st, err := conn.Stats()
			return err == nil && st.IO.MessagesIn == 3 && r.tells("1")
		}
		return false
	})
	p.Close()
	eventually(t, ctx, "the end", func() bool { return conn.State() == control.StateClosing })
	return server, conn
}

// Matrix: INV-03
func TestTheResetEventComesBehindWhatWaitsForQueued(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		r := newSlowReader()
		_, conn := overdue(t, ctx, v, r)
		select {
		case <-conn.Closed():
			t.Error("closed while messages wait")
		default:
		}
		if err := conn.Send(control.NewMessage(1, nil, nil)); err == nil {
			t.Error("Send on a connection that is over")
		}
		for range 3 {
			r.next(t, ctx)
		}
		<-conn.Closed()
		if !r.tells("1", "2", "3", "reset") {
			t.Error(r)
		}
	})
}

func TestMarkDownDropsWhatWaitsForQueuedAndTheResetEvent(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		r := newSlowReader()
		server, conn := overdue(t, ctx, v, r)
		conn.MarkDown()
		<-conn.Closed() // without the message that is being dispatched
		r.next(t, ctx)
		if err := server.Shutdown(ctx); err != nil || !r.tells("1") {
			t.Errorf("%v, %v", err, r)
		}
	})
}

func TestShutdownWaitsForOneMessageOfAConnectionThatIsOver(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		r := newSlowReader()
		server, conn := overdue(t, ctx, v, r)
		ended := make(chan error, 1)
		go func() { ended <- server.Shutdown(ctx) }()
		<-conn.Closed()
		r.next(t, ctx)
		if err := <-ended; err != nil || !r.tells("1") {
			t.Errorf("%v, %v", err, r)
		}
	})
}

func TestACoreThatIsRemovedDoesNotWaitForQueued(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		r := newSlowReader()
		server, conn := overdue(t, ctx, v, r)
		if _, err := server.AddCore(ctx); err != nil {
			t.Fatal(err)
		}
		must(t, server.RemoveCore(ctx, conn.Core().ID()))
		<-conn.Closed()
		r.next(t, ctx)
		eventually(t, ctx, "the reset event and nothing else", func() bool { return r.tells("1", "reset") })
	})
}
