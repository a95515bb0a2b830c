package control_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Requests keep coming while the server drains: what it has answered arrives, and so
// does all that its own goroutines have sent.
func TestDrainLosesNothingUnderLoad(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for i := range int64(6) { // each time after more answers
			drainUnderLoad(t, ctx, v, []pairing{{"LC", "SLS"}, {"LLC", "SFS"}}[i%2], 4*i)
		}
	})
}

func drainUnderLoad(t *testing.T, ctx context.Context, v variant, p pairing, answers int64) {
	var answered, arrived, pushed, came atomic.Int64
	server := nodeOf(t, v, "osd.0", p.acceptor, 1, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		if c.Reply(m, control.NewMessage(2, make([]byte, 300), nil)) == nil {
			answered.Add(1)
		}
		return true
	}}))
	client := nodeOf(t, v, "client.1", p.connector, 2, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		if m.Type == 3 {
			came.Add(1)
			return true
		}
		arrived.Add(1)
		_ = c.Send(control.NewMessage(1, make([]byte, 100), nil)) // the next request
		return true
	}}))
	conn := client.Dial(server)
	for range 16 {
		send(t, conn, 0)
	}
	back := first(t, ctx, server)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 300 {
				if err := back.SendContext(ctx, control.NewMessage(3, make([]byte, 2000), nil)); err != nil {
					if !errors.Is(err, control.ErrClosed) {
						t.Error(err)
					}
					return
				}
				pushed.Add(1)
			}
		})
	}
	eventually(t, ctx, "some answers", func() bool { return arrived.Load() > answers })
	must(t, server.Drain(ctx))
	wg.Wait()
	eventually(t, ctx, "the rest", func() bool { return arrived.Load() >= answered.Load() && came.Load() >= pushed.Load() })
	if a, b, c, d := answered.Load(), arrived.Load(), pushed.Load(), came.Load(); a != b || c != d {
		t.Errorf("answered %d, arrived %d; pushed %d, came %d", a, b, c, d)
	}
}

func TestDrainEndsWithItsContextAndSaysSo(t *testing.T) {
	ctx := deadline(t)
	for _, underWay := range []bool{false, true} {
		client := nodeOf(t, variants[0], "client.1", "LLC", 2)
		conn := connect(t, client, peerAddr(1), wire.OSD)
		send(t, conn, 1)
		if underWay { // of the connection alone
			go func() { _ = conn.Drain(ctx) }()
			awaitDrain(t, ctx, conn)
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		wantError(t, "Drain", client.Drain(short), context.DeadlineExceeded)
		<-conn.Closed()
		wantError(t, "behind it", onlyError(client.Connect(peerAddr(1), wire.OSD)), control.ErrShutdown)
	}
	over, end := context.WithCancel(ctx)
	end()
	must(t, nodeOf(t, variants[0], "client.1", "LLC", 2).Drain(over)) // nothing is left
	still := nodeOf(t, variants[0], "osd.1", "SFS", 1, func(c *nodetest.NodeConfig) { c.Timeouts.Handshake = 50 * time.Millisecond })
	turn := make(chan struct{})
	defer close(turn)
	must(t, still.Core(0).Do(func(*loop.Core) { <-turn }))
	drained := async(func() error { return still.Drain(over) })
	wantError(t, "a core stands still", arrives(t, "the end of its drain", drained), context.DeadlineExceeded)
}

// awaitDrain waits until a connection is drained, so that it refuses calls.
func awaitDrain(t *testing.T, ctx context.Context, c *control.Conn) {
	t.Helper()
	eventually(t, ctx, "the drain", func() bool {
		r := &control.Request{Message: control.NewMessage(typeUpper, nil, nil), Done: func(*control.Request, *control.Message, error) {}}
		err := c.Start(r)
		if err == nil {
			r.Cancel()
		}
		return errors.Is(err, control.ErrClosed)
	})
}

// The successor of a hand-over delivers the messages.
func TestDrainEndsWithAHandOver(t *testing.T) {
	ctx := deadline(t)
	m := serveEcho(t, serverConfig(uring.Auto, 1))
	conn := connect(t, m, peerAddr(1), wire.OSD)
	send(t, conn, 1)
	drained := async(func() error { return conn.Drain(ctx) })
	awaitDrain(t, ctx, conn)
	next := succeed(t, ctx, m, serverConfig(uring.Auto, 1))
	defer end(t, next)
	wantError(t, "Drain", <-drained, control.ErrHandedOver)
}

// A session whose client is gone cannot be waited for where nobody can come.
func TestDrainNamesWhatNobodyCanFetch(t *testing.T) {
	ctx := deadline(t)
	server := nodeOf(t, variants[0], "osd.0", "SFS", 1)
	client := nodeOf(t, variants[0], "client.1", "LLC", 2)
	conn := client.Dial(server)
	send(t, conn, 1)
	receives(t, ctx, server, 1)
	back := first(t, ctx, server)
	conn.MarkDown()
	eventually(t, ctx, "standby", func() bool { return back.State() == control.StateStandby })
	send(t, back, 2)
	err := server.Drain(ctx)
	wantError(t, "Drain", err, control.ErrUndelivered)
	if err != nil && !strings.Contains(err.Error(), "connection 1 to a peer of type client at 127.0.0.1:") {
		t.Errorf("the error does not name the peer: %v", err)
	}
}

func TestDrainWaitsForCallsAndForQueuedDispatches(t *testing.T) {
	ctx := deadline(t)
	pending := make(chan control.PendingReply, 1)
	server := callServer(t, variants[0], "SLS", func(p control.PendingReply, _ string) { pending <- p })
	client := nodeOf(t, variants[0], "client.1", "LC", 2)
	conn := client.Dial(server)
	result := async(func() error { return onlyError(call(ctx, conn, typeLater, "x")) })
	p := <-pending
	elsewhere := control.NewMessage(1, nil, nil)
	must(t, connect(t, client, peerAddr(1), wire.OSD).Send(elsewhere))
	begin := conn.Start(&control.Request{Message: elsewhere, Done: func(*control.Request, *control.Message, error) {}})
	wantError(t, "a call that does not begin, for which nobody waits", begin, control.ErrInUse)
	drained := async(func() error { return conn.Drain(ctx) })
	awaitDrain(t, ctx, conn)
	must(t, p.Send(control.NewMessage(1, nil, nil)))
	if err := <-result; err != nil {
		t.Errorf("the call: %v", err)
	}
	if err := <-drained; err != nil {
		t.Errorf("the drain: %v", err)
	}
}

// No message that Send takes while Drain ends is dropped.
func TestDrainOfLoopbackDispatchesWhatSendTakes(t *testing.T) {
	us := nodeOf(t, variants[0], "osd.4", "LP", 4)
	for range 1000 {
		c, err := us.Loopback()
		must(t, err)
		drained := async(func() error { return c.Drain(deadline(t)) })
		for sent := true; sent; {
			m, freed := control.NewMessage(1, nil, nil), make(chan dataplane.Outcome, 1)
			m.Free = func(m *control.Message) { freed <- m.Outcome() }
			runtime.Gosched() // on one processor, too, the core looks soon
			if sent = c.Send(m) == nil; sent && <-freed != dataplane.OutcomeAcknowledged {
				t.Fatal("it is dropped")
			}
		}
		must(t, <-drained)
	}
}

// It waits for replies that are due, and tells that MarkDown drops messages.
func TestDrainOfLoopbackEndsLikeThatOfAPeer(t *testing.T) {
	ctx := deadline(t)
	pending, turn := make(chan control.PendingReply, 1), make(chan struct{})
	us := nodeOf(t, variants[0], "osd.4", "LP", 4, withChain(&control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		switch m.Type {
		case typeLater:
			pending <- c.Later(m)
		case 77:
			<-turn
			c.MarkDown()
		}
		return true
	}}))
	over, end := context.WithCancel(ctx)
	defer end()
	for _, way := range []string{"given", "not given"} {
		c, err := us.Loopback()
		must(t, err)
		must(t, c.Send(control.NewMessage(typeLater, nil, nil)))
		p := arrives(t, "the request", pending)
		drained := async(func() error { return c.Drain(over) })
		awaitDrain(t, ctx, c)
		if way == "given" {
			must(t, p.Send(control.NewMessage(1, nil, nil)))
			must(t, <-drained)
			continue
		}
		end()
		if err := <-drained; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 replies due") {
			t.Errorf("the drain: %v", err)
		}
	}
	for told := 0; told < 100; {
		c, err := us.Loopback()
		must(t, err)
		must(t, c.Send(control.NewMessage(77, nil, nil)))
		send(t, c, 2)
		drained := async(func() error { return c.Drain(ctx) })
		awaitDrain(t, ctx, c)
		turn <- struct{}{}
		if err := <-drained; !errors.Is(err, control.ErrClosed) { // the end may be earlier than the drain, which refuses calls first
			wantError(t, "the drain of dropped messages", err, control.ErrUndelivered)
			told++
		}
	}
}

// A handler that answers later has the time that its caller has: Drain waits for it, and
// names the replies for which it has waited in vain.
func TestDrainWaitsForRepliesThatAreDue(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, way := range []string{"given", "given up", "refused", "not given"} {
			pending := make(chan control.PendingReply, 1)
			server := callServer(t, v, "SFS", func(p control.PendingReply, _ string) { pending <- p })
			faults := make(chan error, 1)
			client := nodeOf(t, v, "client.1", "LLC", 2, withChain(&control.Dispatcher{Fault: func(_ *control.Conn, err error) { faults <- err }}))
			conn := client.Dial(server)
			calling, hangUp := context.WithCancel(ctx)
			result := async(func() error {
				reply, err := call(calling, conn, typeLater, "x")
				if err == nil && reply != "x" {
					err = fmt.Errorf("reply %q", reply)
				}
				return err
			})
			p := <-pending
			draining, giveUp := context.WithCancel(ctx)
			drained := async(func() error { return server.Drain(draining) })
			awaitDrain(t, ctx, p.Conn())
			var want error
			switch way {
			case "given":
				must(t, p.Send(control.NewMessage(1, []byte("x"), nil)))
			case "given up":
				must(t, p.Send(nil))
			case "refused":
				elsewhere := control.NewMessage(1, nil, nil)
				must(t, connect(t, client, peerAddr(1), wire.OSD).Send(elsewhere))
				wantError(t, "a message in another queue", p.Send(elsewhere), control.ErrInUse)
			default:
				giveUp()
				want = context.Canceled
			}
			if err := <-drained; !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), "1 replies due") {
				t.Errorf("%s: the drain: %v", way, err)
			}
			// A drain that is cut short may leave bytes unread, so that the kernel resets.
			if err := <-faults; !errors.Is(err, loop.ErrPeerClosed) && !(want != nil && errors.Is(err, syscall.ECONNRESET)) {
				t.Errorf("%s: the client hears of %v", way, err)
			}
			if way != "given" {
				hangUp()
			}
			if err := <-result; (err == nil) != (way == "given") {
				t.Errorf("%s: the call: %v", way, err)
			}
			giveUp()
			hangUp()
		}
	})
}

// A program that drains at its signal often has a deferred Shutdown, whose context has ended by then.
func TestShutdownBehindDrainIsNoError(t *testing.T) {
	ctx := deadline(t)
	m := nodeOf(t, variants[0], "client.1", "LC", 2)
	must(t, m.Drain(ctx))
	ended, end := context.WithCancel(ctx)
	end()
	for range 100 {
		must(t, m.Shutdown(ended))
	}
}
