package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// callServer answers each request with its front, upper case, unless its type says
// otherwise.
func callServer(t *testing.T, v variant, policy string, later func(control.PendingReply, string), change ...func(*nodetest.NodeConfig)) *nodetest.Node {
	return nodeOf(t, v, "osd.0", policy, 1, append(change, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		switch m.Type {
		case typeSilent:
		case typeLater:
			later(c.Later(m), string(m.Front))
		default:
			reply := control.NewMessage(m.Type, []byte(strings.ToUpper(string(m.Front))), nil)
			if c.Reply(m, reply) != nil {
				reply.Release()
			}
		}
		return true
	}}))...)
}

const (
	typeUpper  = 10 // answered at once
	typeLater  = 11 // answered later
	typeSilent = 12 // never answered
)

// call makes one call and returns the front of the reply.
func call(ctx context.Context, c *control.Conn, typ uint16, front string, opts ...control.CallOption) (string, error) {
	reply, err := c.Call(ctx, control.NewMessage(typ, []byte(front), nil), opts...)
	if err != nil {
		return "", err
	}
	defer reply.Release()
	return string(reply.Front), nil
}

func TestCallsOfManyGoroutinesGetTheirOwnReplies(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		server := callServer(t, v, "SFS", func(p control.PendingReply, front string) {
			go func() { // from any goroutine
				if err := p.Send(control.NewMessage(typeLater, []byte(front+" later"), nil)); err != nil {
					t.Error(err)
				}
			}()
		})
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(server)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 50 {
					typ, want := uint16(typeUpper), fmt.Sprintf("G%d-%d", g, i)
					front := strings.ToLower(want)
					if i%2 == 1 {
						typ, want = typeLater, front+" later"
					}
					if got, err := call(ctx, conn, typ, front); got != want || err != nil {
						t.Errorf("got %q, %v, want %q", got, err, want)
					}
				}
			})
		}
		wg.Wait()
		if n := len(client.Inbox.Messages()); n != 0 {
			t.Errorf("%d replies came to the dispatchers", n)
		}
	})
}

// A call outlives the TCP connections of a lossless session.
func TestACallIsAnsweredOverAReconnect(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		pending := make(chan control.PendingReply, 1)
		server := callServer(t, v, "SFS", func(p control.PendingReply, _ string) { pending <- p })
		client := nodeOf(t, v, "client.1", "LLC", 2)
		conn := client.Dial(server)
		result := make(chan error, 1)
		go func() {
			got, err := call(ctx, conn, typeLater, "x")
			if err == nil && got != "after" {
				err = fmt.Errorf("got %q", got)
			}
			result <- err
		}()
		p := <-pending
		b := client.Probe.ArmNext(nodetest.MustPoint("MESSAGE_WRITE"), nodetest.Fault())
		if _, err := call(ctx, conn, typeUpper, "y"); err != nil {
			t.Fatal(err)
		}
		client.Hit(ctx, b)
		if err := p.Send(control.NewMessage(1, []byte("after"), nil)); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != nil {
			t.Fatal(err)
		}
	})
}

// Cases of a session that ends under calls.
func TestALostSessionEndsItsCallsWithATypedError(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, c := range []struct {
			name, client, server string
			end                  func(client, server *nodetest.Node, conn *control.Conn)
			is                   error
		}{
			{"a lossy connection breaks", "LC", "SLS", func(_, server *nodetest.Node, _ *control.Conn) { end(t, server.Messenger) }, control.ErrSessionLost},
			{"marked down", "LLC", "SFS", func(_, _ *nodetest.Node, conn *control.Conn) { conn.MarkDown() }, control.ErrMarkedDown},
			{"shut down", "LLC", "SFS", func(client, _ *nodetest.Node, _ *control.Conn) { end(t, client.Messenger) }, control.ErrShutdown},
			{"the peer has lost the session", "LLC", "SFS", func(_, server *nodetest.Node, _ *control.Conn) {
				for _, o := range server.Conns() {
					o.MarkDown()
				}
			}, control.ErrSessionLost},
		} {
			arrived := make(chan control.PendingReply, 8)
			server := callServer(t, v, c.server, func(p control.PendingReply, _ string) { arrived <- p })
			client := nodeOf(t, v, "client.1", c.client, 2)
			conn := client.Dial(server)
			results := make(chan error, 3)
			for range cap(results) {
				go func() {
					_, err := call(ctx, conn, typeLater, "x")
					results <- err
				}()
			}
			for range cap(results) {
				<-arrived
			}
			c.end(client, server, conn)
			for range cap(results) {
				if err := <-results; !errors.Is(err, control.ErrSessionLost) || !errors.Is(err, c.is) {
					t.Errorf("%s: %v, want %v", c.name, err, c.is)
				}
			}
		}
	})
}

// A request that was not written is withdrawn with its call, and its memory is free.
func TestACanceledCallWithdrawsWhatWasNotSent(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	client := nodeOf(t, variants[0], "client.1", "LLC", 2)
	conn := toNobody(t, client)
	canceled, cancel := context.WithCancelCause(ctx)
	freed := make(chan struct{})
	m := control.NewMessage(typeUpper, make([]byte, 100), nil)
	m.Free = func(*control.Message) { close(freed) }
	result := make(chan error, 1)
	go func() {
		_, err := conn.Call(canceled, m)
		result <- err
	}()
	eventually(t, ctx, "the request in the queue", func() bool { return held(t, conn) == 100 })
	why := errors.New("why")
	cancel(why)
	if err := <-result; !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	<-freed
	eventually(t, ctx, "an empty queue", func() bool { return held(t, conn) == 0 })
}

func held(t *testing.T, c *control.Conn) int64 {
	t.Helper()
	st, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return st.HeldBytes
}

// A reply that comes too late goes where all go that nobody waits for.
func TestAReplyBehindTheCancelGoesToTheDispatchers(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		arrived := make(chan control.PendingReply, 1)
		server := callServer(t, v, "SLS", func(p control.PendingReply, _ string) { arrived <- p })
		client := nodeOf(t, v, "client.1", "LC", 2)
		conn := client.Dial(server)
		canceled, cancel := context.WithCancel(ctx)
		result := make(chan error, 1)
		go func() {
			_, err := call(canceled, conn, typeLater, "x", control.WithTID(77))
			result <- err
		}()
		p := <-arrived
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := p.Send(control.NewMessage(1, nil, nil)); err != nil {
			t.Fatal(err)
		}
		receives(t, ctx, client, 77)
	})
}

func TestCallsAreBounded(t *testing.T) {
	ctx := deadline(t)
	pending := make(chan control.PendingReply, 8)
	server := callServer(t, variants[0], "SLS", func(p control.PendingReply, _ string) { pending <- p })
	client := nodeOf(t, variants[0], "client.1", "LC", 2, func(c *nodetest.NodeConfig) { c.Sending.Calls = 2 })
	conn := client.Dial(server)
	ended := make(chan error, 8)
	request := func() *control.Request {
		return &control.Request{
			Message: control.NewMessage(typeLater, nil, nil),
			Done:    func(_ *control.Request, _ *control.Message, err error) { ended <- err },
		}
	}
	first := request()
	for _, r := range []*control.Request{first, request()} {
		if err := conn.Start(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Start(first); !errors.Is(err, control.ErrInUse) {
		t.Errorf("a request that is under way: %v", err)
	}
	if err := conn.Start(request()); !errors.Is(err, control.ErrTooManyCalls) {
		t.Errorf("one more: %v", err)
	}
	third := make(chan error, 1)
	go func() { // one that waits gets through when another ends
		_, err := call(ctx, conn, typeLater, "x")
		third <- err
	}()
	answer := func() {
		t.Helper()
		if err := (<-pending).Send(control.NewMessage(1, nil, nil)); err != nil {
			t.Fatal(err)
		}
	}
	answer()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	answer()
	answer()
	if err := <-third; err != nil {
		t.Error(err)
	}
}

func TestATransactionIDIsUsedOnceAtATime(t *testing.T) {
	ctx := deadline(t)
	pending := make(chan control.PendingReply, 8)
	server := callServer(t, variants[0], "SLS", func(p control.PendingReply, _ string) { pending <- p })
	client := nodeOf(t, variants[0], "client.1", "LC", 2)
	conn := client.Dial(server)
	first := make(chan error, 1)
	go func() {
		_, err := call(ctx, conn, typeLater, "x", control.WithTID(5))
		first <- err
	}()
	p := <-pending
	if _, err := call(ctx, conn, typeUpper, "y", control.WithTID(5)); !errors.Is(err, control.ErrTIDInUse) {
		t.Errorf("the same id: %v", err)
	}
	if err := p.Send(control.NewMessage(1, nil, nil)); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got, err := call(ctx, conn, typeUpper, "z", control.WithTID(5)); got != "Z" || err != nil {
		t.Errorf("when it is free: %q, %v", got, err)
	}
}

// A core must not wait for itself.
func TestACallOnACoreFailsAtOnce(t *testing.T) {
	ctx := deadline(t)
	server := callServer(t, variants[0], "SLS", nil)
	got := make(chan error, 1)
	freed := make(chan struct{})
	client := nodeOf(t, variants[0], "client.1", "LC", 2, withChain(&control.Dispatcher{Connect: func(c *control.Conn, _ int) {
		m := control.NewMessage(typeUpper, nil, nil)
		m.Free = func(*control.Message) { close(freed) }
		_, err := c.Call(ctx, m)
		got <- err
	}}))
	client.Dial(server)
	if err := <-got; !errors.Is(err, loop.ErrOnCore) {
		t.Errorf("got %v", err)
	}
	<-freed
}

func TestCallsToOurselves(t *testing.T) {
	ctx := deadline(t)
	us := nodeOf(t, variants[0], "osd.4", "LP", 4, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		if m.Type == typeUpper {
			if err := c.Reply(m, control.NewMessage(m.Type+1, []byte(strings.ToUpper(string(m.Front))), nil)); err != nil {
				t.Error(err)
			}
		}
		return true
	}}))
	c, err := us.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := call(ctx, c, typeUpper, "x"); got != "X" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	short, cancel := context.WithCancel(ctx)
	result := make(chan error, 2)
	go func() {
		_, err := call(short, c, typeSilent, "x")
		result <- err
	}()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	r := &control.Request{Message: control.NewMessage(typeSilent, nil, nil), Done: func(_ *control.Request, _ *control.Message, err error) { result <- err }}
	if err := c.Start(r); err != nil {
		t.Fatal(err)
	}
	c.MarkDown()
	if err := <-result; !errors.Is(err, control.ErrSessionLost) {
		t.Errorf("marked down: %v", err)
	}
}

// A reply that is given when the peer has lost its session reaches nobody.
func TestALateReplyDoesNotReachTheNextSession(t *testing.T) {
	ctx := deadline(t)
	pending := make(chan control.PendingReply, 1)
	lost := make(chan struct{})
	server := nodeOf(t, variants[0], "osd.0", "LPR", 1, withChain(&control.Dispatcher{
		Fast: func(c *control.Conn, m *control.Message) bool {
			pending <- c.Later(m)
			return true
		},
		RemoteReset: func(*control.Conn) { close(lost) },
	}))
	client := nodeOf(t, variants[0], "osd.1", "LPR", 2)
	conn := client.Dial(server)
	send(t, conn, 1)
	p := <-pending
	conn.MarkDown()
	<-conn.Closed()
	send(t, p.Conn(), 2) // it dials, and finds that the session is gone
	select {
	case <-lost:
	case <-ctx.Done():
		t.Fatal("no remote reset")
	}
	m := control.NewMessage(1, nil, nil)
	if err := p.Send(m); !errors.Is(err, control.ErrSessionLost) {
		t.Errorf("got %v", err)
	}
}
