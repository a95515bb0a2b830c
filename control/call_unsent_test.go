package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// start starts a request of typeLater, and returns its outcome.
func start(t *testing.T, c *control.Conn, front string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	must(t, c.Start(&control.Request{
		Message: control.NewMessage(typeLater, []byte(front), nil),
		Done:    func(_ *control.Request, _ *control.Message, err error) { ended <- err },
	}))
	return ended
}

// checkCallError wants an error of one of the three kinds, with its reason.
func checkCallError(t *testing.T, name string, err, kind, reason error) {
	t.Helper()
	if !errors.Is(err, reason) {
		t.Errorf("%s: %v, want the reason %v", name, err, reason)
	}
	for _, k := range []error{control.ErrNotSent, control.ErrSessionLost, control.ErrRefused} {
		if errors.Is(err, k) != (k == kind) {
			t.Errorf("%s: %v, want %v and no other kind", name, err, kind)
		}
	}
}

// Requests that wait for a server go to the next process at its address, in their order.
// That process has lost the session: nobody knows what became of a request that the old
// one had, and the new one must not get it.
func TestARestartOfAServerFailsOnlyRequestsThatWereWritten(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		arrived := make(chan control.PendingReply, 1)
		old := callServer(t, v, "SFS", func(p control.PendingReply, _ string) { arrived <- p })
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(old)
		written := start(t, conn, "written")
		must(t, (<-arrived).Send(nil)) // it will have no reply
		must(t, old.Drain(ctx))
		eventually(t, ctx, "the end of the socket", func() bool { return conn.State() != control.StateReady })
		send(t, conn, 7) // belongs to the session that ends
		var fronts []string
		var unwritten []<-chan error
		for i := range 20 {
			fronts = append(fronts, fmt.Sprint(i))
			unwritten = append(unwritten, start(t, conn, fronts[i]))
		}
		var mu sync.Mutex
		var came []string
		fresh := callServer(t, v, "SFS", func(p control.PendingReply, front string) {
			mu.Lock()
			came = append(came, front)
			mu.Unlock()
			if err := p.Send(control.NewMessage(1, nil, nil)); err != nil {
				t.Error(err)
			}
		}, func(c *nodetest.NodeConfig) {
			c.Bind = wire.AddrVec{{Type: old.Addr.Type, AddrPort: old.Addr.AddrPort}}
		})
		for i, ended := range unwritten {
			if err := <-ended; err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		checkCallError(t, "the written one", <-written, control.ErrSessionLost, control.ErrSessionLost)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(came, fronts) {
			t.Errorf("the new process got %q, want %q", came, fronts)
		}
		if tids := fresh.Inbox.TIDs(); slices.Contains(tids, 7) {
			t.Errorf("the new process got a message of the old session")
		}
	})
}

func TestARequestThatNoSocketTookIsNotSent(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := callServer(t, v, "SFS", nil)
		must(t, server.Unbind())
		client := nodeOf(t, v, "client.1", "LLC", 2, func(c *nodetest.NodeConfig) { c.Sending.Calls = 1 })
		conn := client.Dial(server)
		waits := start(t, conn, "x")
		short, cancel := context.WithCancel(ctx)
		noRoom := make(chan error, 1)
		go func() {
			_, err := call(short, conn, typeUpper, "x")
			noRoom <- err
		}()
		cancel()
		checkCallError(t, "no room for calls", <-noRoom, control.ErrNotSent, context.Canceled)
		conn.MarkDown()
		checkCallError(t, "marked down", <-waits, control.ErrNotSent, control.ErrMarkedDown)
	})
}

func TestTheOutcomeOfARequestThatWasWrittenIsUnknown(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		arrived := make(chan control.PendingReply, 1)
		server := callServer(t, v, "SLS", func(p control.PendingReply, _ string) { arrived <- p })
		conn := nodeOf(t, v, "client.1", "LC", 2).Dial(server)
		written := start(t, conn, "x")
		<-arrived
		conn.MarkDown()
		checkCallError(t, "marked down", <-written, control.ErrSessionLost, control.ErrMarkedDown)
	})
}

func TestARequestThatNobodyTakesIsRefused(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		arrived := make(chan control.PendingReply, 1)
		server := callServer(t, v, "SFS", func(p control.PendingReply, _ string) { arrived <- p })
		client := nodeOf(t, v, "client.1", "LLC", 2)
		if !v.msgr1 { // where a peer does not say its type
			wrong, err := client.Connect(server.Addr, wire.MDS)
			must(t, err)
			_, err = call(ctx, wrong, typeUpper, "x")
			checkCallError(t, "another peer", err, control.ErrRefused, handshake.ErrPeerType)
		}
		conn := client.Dial(server)
		must(t, conn.Start(&control.Request{
			TID: 5, Message: control.NewMessage(typeLater, nil, nil), Done: func(*control.Request, *control.Message, error) {},
		}))
		<-arrived
		_, err := call(ctx, conn, typeUpper, "x", control.WithTID(5))
		checkCallError(t, "an id in use", err, control.ErrRefused, control.ErrTIDInUse)
		conn.MarkDown()
		<-conn.Closed()
		_, err = call(ctx, conn, typeUpper, "x")
		checkCallError(t, "a connection that is over", err, control.ErrRefused, control.ErrClosed)
	})
}

// The reply may wait behind replies that the program has not released: the error names them.
func TestACallBehindMessagesThatAreNotReleasedSaysSo(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		arrived := make(chan control.PendingReply, 1)
		server := callServer(t, v, "SFS", func(p control.PendingReply, _ string) { arrived <- p })
		client := nodeOf(t, v, "client.1", "LLC", 2, func(c *nodetest.NodeConfig) { c.Receiving.ConnBytes = 128 << 10 })
		conn := client.Dial(server)
		replies := make(chan *control.Message, 4)
		for range cap(replies) {
			must(t, conn.Start(&control.Request{
				Message: control.NewMessage(typeUpper, make([]byte, 64<<10), nil),
				Done: func(_ *control.Request, reply *control.Message, err error) {
					if err != nil {
						t.Error(err)
						return
					}
					reply.Retain()
					replies <- reply
				},
			}))
		}
		eventually(t, ctx, "a connection that is throttled", func() bool {
			st, err := conn.Stats()
			return err == nil && st.IO.Throttled
		})
		if st, err := client.Stats(); err != nil || st.ThrottledConns != 1 || st.ThrottledFor <= 0 {
			t.Errorf("the messenger shows %d throttled connections, for %v (%v)", st.ThrottledConns, st.ThrottledFor, err)
		}
		if info := conn.Info(); info.Unreleased < 64<<10 || info.ThrottledFor <= 0 {
			t.Errorf("the connection shows %d bytes, for %v", info.Unreleased, info.ThrottledFor)
		}
		short, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := call(short, conn, typeLater, "x")
			ended <- err
		}()
		later := <-arrived
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "received messages are not released") {
			t.Errorf("the call ends with %v", err)
		}
		for range cap(replies) {
			(<-replies).Release()
		}
		eventually(t, ctx, "a connection that reads again", func() bool {
			st, err := client.Stats()
			return err == nil && st.ThrottledConns == 0 && st.ThrottledFor == 0 && conn.Info().ThrottledFor == 0
		})
		if err := later.Send(control.NewMessage(1, nil, nil)); err != nil {
			t.Error(err)
		}
	})
}

func TestSendBehindTheEndOfALossyConnectionSaysWhatToDo(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := callServer(t, v, "SLS", nil)
		conn := nodeOf(t, v, "client.1", "LC", 2).Dial(server)
		if _, err := call(ctx, conn, typeUpper, "x"); err != nil {
			t.Fatal(err)
		}
		first(t, ctx, server).MarkDown()
		<-conn.Closed()
		m := control.NewMessage(1, nil, nil)
		if err := conn.Send(m); !errors.Is(err, control.ErrClosed) || !strings.Contains(err.Error(), "Connect makes another one") {
			t.Errorf("Send: %v", err)
		}
		m.Release()
	})
}
