package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
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
				check(t, p.Send(control.NewMessage(typeLater, []byte(front+" later"), nil)))
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

// sessionEnds are the ways in which a session ends under calls and postings.
var sessionEnds = []struct {
	name, client, server string
	end                  func(t *testing.T, client, server *nodetest.Node, conn *control.Conn)
	is                   error
}{
	{"a lossy connection breaks", "LC", "SLS", func(t *testing.T, _, server *nodetest.Node, _ *control.Conn) { end(t, server.Messenger) }, control.ErrSessionLost},
	{"marked down", "LLC", "SFS", func(_ *testing.T, _, _ *nodetest.Node, conn *control.Conn) { conn.MarkDown() }, control.ErrMarkedDown},
	{"shut down", "LLC", "SFS", func(t *testing.T, client, _ *nodetest.Node, _ *control.Conn) { end(t, client.Messenger) }, control.ErrShutdown},
	{"the peer has lost the session", "LLC", "SFS", func(_ *testing.T, _, server *nodetest.Node, _ *control.Conn) {
		for _, o := range server.Conns() {
			o.MarkDown()
		}
	}, control.ErrSessionLost},
}

// Nobody knows what became of a request that was written.
// Matrix: V1-13
func TestALostSessionEndsItsCallsAndPostingsWithATypedError(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, c := range sessionEnds {
			arrived := make(chan control.PendingReply, 8)
			server := callServer(t, v, c.server, func(p control.PendingReply, _ string) { arrived <- p })
			client := nodeOf(t, v, "client.1", c.client, 2)
			conn := client.Dial(server)
			calls, posted := make(chan error, 3), make(chan error, 3)
			for range cap(calls) {
				go func() { calls <- onlyError(call(ctx, conn, typeLater, "x")) }()
			}
			postings := make([]*control.Posting, cap(posted))
			for i := range postings {
				postings[i] = &control.Posting{TID: uint64(1)<<40 + uint64(i), Buffer: make([]byte, 10),
					Done: func(_ *control.Posting, err error) { posted <- err }}
				must(t, conn.PostBuffer(postings[i]))
			}
			for range cap(calls) {
				<-arrived
			}
			if n := connStats(t, conn).IO.Postings; n != cap(posted) {
				t.Fatalf("%s: %d postings", c.name, n)
			}
			c.end(t, client, server, conn)
			for range cap(calls) {
				checkCallError(t, c.name, <-calls, control.ErrSessionLost, c.is)
			}
			for _, p := range postings {
				checkCallError(t, c.name+", a posting", <-posted, control.ErrSessionLost, c.is)
				must(t, p.TakeBack(ctx))
			}
			conn.MarkDown()
			<-conn.Closed()
			wantError(t, c.name+", PostBuffer", conn.PostBuffer(postings[0]), control.ErrClosed)
		}
	})
}

// A request that was not written is withdrawn with its call, and its memory is free.
func TestACanceledCallWithdrawsWhatWasNotSent(t *testing.T) {
	drivertest.LeavesNothing(t)
	ctx := deadline(t)
	client := nodeOf(t, variants[0], "client.1", "LLC", 2)
	conn := connect(t, client, peerAddr(1), wire.OSD)
	canceled, cancel := context.WithCancelCause(ctx)
	freed := make(chan struct{})
	m := control.NewMessage(typeUpper, make([]byte, 100), nil)
	m.Free = func(*control.Message) { close(freed) }
	result := async(func() error { return onlyError(conn.Call(canceled, m)) })
	eventually(t, ctx, "the request in the queue", func() bool { return held(t, conn) == 100 })
	why := errors.New("why")
	cancel(why)
	wantError(t, "Call", <-result, why)
	<-freed
	eventually(t, ctx, "an empty queue", func() bool { return held(t, conn) == 0 })
}

func held(t *testing.T, c *control.Conn) int64 {
	t.Helper()
	return connStats(t, c).HeldBytes
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
		must(t, conn.Start(r))
	}
	wantError(t, "a request that is under way", conn.Start(first), control.ErrInUse)
	wantError(t, "one more", conn.Start(request()), control.ErrTooManyCalls)
	third := async(func() error { return onlyError(call(ctx, conn, typeLater, "x")) }) // one that waits gets through when another ends
	answer := func() {
		t.Helper()
		must(t, (<-pending).Send(control.NewMessage(1, nil, nil)))
	}
	answer()
	check(t, <-ended)
	answer()
	answer()
	check(t, <-third)
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
		got <- onlyError(c.Call(ctx, m))
	}}))
	client.Dial(server)
	wantError(t, "Call on a core", <-got, loop.ErrOnCore)
	<-freed
}

func TestCallsToOurselves(t *testing.T) {
	ctx := deadline(t)
	gate := make(chan struct{})
	us := nodeOf(t, variants[0], "osd.4", "LP", 4, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		if m.Type == typeLater {
			<-gate
		}
		if m.Type == typeUpper {
			check(t, c.Reply(m, control.NewMessage(m.Type+1, []byte(strings.ToUpper(string(m.Front))), nil)))
		}
		return true
	}}))
	c, err := us.Loopback()
	must(t, err)
	if got, err := call(ctx, c, typeUpper, "x"); got != "X" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	types := make(chan uint16, 1)
	again := &control.Request{Done: func(_ *control.Request, reply *control.Message, _ error) { types <- reply.Type }}
	for range 2 {
		again.Message = control.NewMessage(typeUpper, nil, nil)
		must(t, c.Start(again))
		if typ := <-types; typ != typeUpper+1 {
			t.Errorf("a message of type %d is taken for the reply", typ)
		}
	}
	short, cancel := context.WithCancel(ctx)
	result := make(chan error, 2)
	go func() { result <- onlyError(call(short, c, typeSilent, "x")) }()
	cancel()
	wantError(t, "canceled", <-result, context.Canceled)
	checkCallError(t, "canceled before", onlyError(call(short, c, typeUpper, "x")), control.ErrNotSent, context.Canceled)
	var mu sync.Mutex // of the user's, free in Done
	r := &control.Request{TID: 7, Message: control.NewMessage(typeSilent, nil, nil), Done: func(_ *control.Request, _ *control.Message, err error) {
		mu.Lock()
		defer mu.Unlock()
		result <- err
	}}
	must(t, c.Send(control.NewMessage(typeLater, nil, nil)))
	must(t, c.Start(r)) // it waits for the gate
	mu.Lock()
	r.Cancel()
	mu.Unlock()
	wantError(t, "canceled with a lock", <-result, context.Canceled)
	again.TID, again.Message = 7, control.NewMessage(typeUpper, nil, nil)
	must(t, c.Start(again))
	close(gate)
	if typ := <-types; typ != typeUpper+1 {
		t.Errorf("a message of type %d is taken for the reply to a request with the id of an earlier one", typ)
	}
	r.TID, r.Message = 0, control.NewMessage(typeSilent, nil, nil)
	must(t, c.Start(r))
	c.MarkDown()
	wantError(t, "marked down", <-result, control.ErrSessionLost)
}

// A request that ends with the connection while Start finds it over frees its message.
func TestACallToOurselvesThatEndsWithStartLeavesNothing(t *testing.T) {
	us := nodeOf(t, variants[0], "osd.4", "LP", 4)
	var freed atomic.Int64
	for range 5000 {
		c, err := us.Loopback()
		must(t, err)
		c.MarkDown()
		for range 50 { // more than it takes to end
			runtime.Gosched() // on one processor, too
			m := control.NewMessage(typeSilent, nil, nil)
			m.Free = func(*control.Message) { freed.Add(1) }
			if c.Start(&control.Request{Message: m, Done: func(*control.Request, *control.Message, error) {}}) != nil {
				m.Release()
			}
		}
		<-c.Closed()
	}
	must(t, us.Shutdown(deadline(t)))
	if left := 5000*50 - freed.Load(); left != 0 {
		t.Errorf("%d messages are left", left)
	}
}

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
			check(t, p.Send(control.NewMessage(1, nil, nil)))
		}, func(c *nodetest.NodeConfig) {
			c.Bind = wire.AddrVec{{Type: old.Addr.Type, AddrPort: old.Addr.AddrPort}}
		})
		for i, ended := range unwritten {
			if err := <-ended; err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		err := <-written
		checkCallError(t, "the written one", err, control.ErrSessionLost, control.ErrSessionLost)
		if want := "control: session lost before the reply: the peer has no such session"; err.Error() != want {
			t.Errorf("the written one fails with %q, want %q", err, want) // and not the last failed attempt to dial
		}
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
		noRoom := async(func() error { return onlyError(call(short, conn, typeUpper, "x")) })
		cancel()
		checkCallError(t, "no room for calls", <-noRoom, control.ErrNotSent, context.Canceled)
		conn.MarkDown()
		checkCallError(t, "marked down", <-waits, control.ErrNotSent, control.ErrMarkedDown)
	})
}

func TestARequestThatNobodyTakesIsRefused(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		arrived := make(chan control.PendingReply, 1)
		server := callServer(t, v, "SFS", func(p control.PendingReply, _ string) { arrived <- p })
		client := nodeOf(t, v, "client.1", "LLC", 2)
		if !v.msgr1 { // where a peer does not say its type
			wrong := connect(t, client, server.Addr, wire.MDS)
			_, err := call(ctx, wrong, typeUpper, "x")
			checkCallError(t, "another peer", err, control.ErrRefused, handshake.ErrPeerType)
		}
		conn := client.Dial(server)
		must(t, conn.Start(&control.Request{
			TID: 5, Message: control.NewMessage(typeLater, nil, nil), Done: func(*control.Request, *control.Message, error) {},
		}))
		<-arrived
		refused := control.NewMessage(typeUpper, []byte("x"), nil)
		_, err := conn.Call(ctx, refused, control.WithTID(5))
		checkCallError(t, "an id in use", err, control.ErrRefused, control.ErrTIDInUse)
		if o := refused.Outcome(); o != dataplane.OutcomeDropped {
			t.Errorf("a refused request was %v", o)
		}
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
		eventually(t, ctx, "a connection that is throttled", func() bool { return connStats(t, conn).IO.Throttled })
		if st, err := client.Stats(); err != nil || st.ThrottledConns != 1 || st.ThrottledFor <= 0 {
			t.Errorf("the messenger shows %d throttled connections, for %v (%v)", st.ThrottledConns, st.ThrottledFor, err)
		}
		if info := conn.Info(); info.Unreleased < 64<<10 || info.ThrottledFor <= 0 {
			t.Errorf("the connection shows %d bytes, for %v", info.Unreleased, info.ThrottledFor)
		}
		short, cancel := context.WithCancel(ctx)
		ended := async(func() error { return onlyError(call(short, conn, typeLater, "x")) })
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
		check(t, later.Send(control.NewMessage(1, nil, nil)))
	})
}

// followed notes what hooks are told.
type followed struct{ journal }

type nameKey struct{}

// calls notes calls by the name in their context, and sends that along.
func (f *followed) calls() *control.RequestHooks {
	return &control.RequestHooks{Call: func(ctx context.Context, _ *control.Conn, r *control.Request) func(*control.Message, error) {
		name, _ := ctx.Value(nameKey{}).(string)
		if name == "" {
			name, _ = r.Context.(string)
		}
		r.Message.Middle = []byte(name)
		f.add("call %s", name)
		return func(reply *control.Message, err error) {
			if reply != nil {
				f.add("%s: %s", name, reply.Front)
				return
			}
			f.add("%s: %v", name, err)
		}
	}}
}

// replies notes replies by the name that came with the request.
func (f *followed) replies() *control.RequestHooks {
	return &control.RequestHooks{Replied: func(_ *control.Conn, requested any, err error) { f.add("replied %v %v", requested, err) }}
}

// named is a dispatcher in front, which takes the name of a request from the message.
func named() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		m.Context = string(m.Middle)
		return false
	}}
}

func TestHooksFollowARequestToItsReplyOnBothSides(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var asked, asking followed
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(named(), &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			answer := control.NewMessage(m.Type, bytes.Clone(m.Front), nil)
			if m.Type == 1 {
				_ = c.Reply(m, answer)
				return true
			}
			due := c.Later(m)
			go func() { _ = due.Send(answer) }()
			return true
		}}), func(c *nodetest.NodeConfig) { c.Diagnostics.Requests = asked.replies() })
		client := nodeOf(t, v, "client.2", "LLC", 2, func(c *nodetest.NodeConfig) { c.Diagnostics.Requests = asking.calls() })
		conn := client.Dial(server)
		for typ := range uint16(2) {
			reply, err := conn.Call(context.WithValue(ctx, nameKey{}, "one"), control.NewMessage(1+typ, []byte("text"), nil))
			must(t, err)
			reply.Release()
			asking.check(t, ctx, "call one", "one: text")
			asked.check(t, ctx, "replied one <nil>")
		}
		done := make(chan struct{})
		r := &control.Request{Context: "two", Message: control.NewMessage(1, []byte("text"), nil), Done: func(*control.Request, *control.Message, error) {
			asking.add("done")
			close(done)
		}}
		must(t, conn.Start(r))
		<-done
		asking.check(t, ctx, "call two", "two: text", "done")
		asked.check(t, ctx, "replied two <nil>")
	})
}

func TestHooksLearnOfCallsThatFail(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var asking followed
		came := make(chan control.PendingReply, 1)
		server := nodeOf(t, v, "osd.1", "SFS", 1, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
			came <- c.Later(m)
			return true
		}}))
		client := nodeOf(t, v, "client.2", "LLC", 2, func(c *nodetest.NodeConfig) { c.Diagnostics.Requests = asking.calls() })
		conn := client.Dial(server)

		// The caller goes away.
		gone, cancel := context.WithCancelCause(context.WithValue(ctx, nameKey{}, "one"))
		reason := errors.New("no more interest")
		go func() { <-came; cancel(reason) }()
		wantError(t, "Call", onlyError(conn.Call(gone, control.NewMessage(1, nil, nil))), reason)
		asking.check(t, ctx, "call one", "one: no more interest")

		// The session ends.
		done := make(chan struct{})
		r := &control.Request{Context: "two", Message: control.NewMessage(1, nil, nil), Done: func(*control.Request, *control.Message, error) { close(done) }}
		must(t, conn.Start(r))
		conn.MarkDown()
		<-done
		if got := asking.take(t, ctx, 2); len(got) != 2 || got[1] == "two: <nil>" {
			t.Errorf("%q", got)
		}

		// It cannot begin.
		r.Context = "three"
		<-conn.Closed()
		wantError(t, "Start", conn.Start(r), control.ErrClosed)
		asking.check(t, ctx, "call three", "three: "+control.ErrClosed.Error())
		_, err := conn.Call(context.WithValue(ctx, nameKey{}, "four"), control.NewMessage(1, nil, nil))
		wantError(t, "Call", err, control.ErrClosed)
		asking.check(t, ctx, "call four", "four: "+err.Error())
	})
}
