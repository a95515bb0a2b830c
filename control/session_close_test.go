package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// pour sends until the connection is over, and returns how that ends.
func pour(conn *control.Conn, size int) error {
	for tid := uint64(1); ; tid++ {
		m := numbered(tid%900, control.NewMessage(1, nil, make([]byte, size)))
		if err := conn.SendContext(context.Background(), m); err != nil {
			m.Release()
			return err
		}
	}
}

// shutsDown must end, and not by the limit of a handshake, which is longer.
func shutsDown(t *testing.T, n *nodetest.Node) {
	t.Helper()
	if err := n.Shutdown(deadline(t)); err != nil {
		t.Errorf("%s: %v", n.Name(), err)
	}
}

// From every point. What was learned of our address or not is no obstacle for the next one.
// Matrix: SH-02, SH-12, HS-13
func TestMarkDownDuringAnAttemptIsFinal(t *testing.T) {
	everyPoint(t, connectPoints+" CLIENT_IDENT_WRITE SERVER_IDENT_READ",
		func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
			acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
			connector := nodeOf(t, v, "client.2", "LLC", 2)
			b := connector.Probe.Arm(at, 1, nodetest.Block())
			conn := connector.Dial(acceptor)
			send(t, conn, 1)
			connector.Hit(ctx, b)
			if got, learns := connector.Addrs(), strings.HasPrefix(nodetest.PointName(at), "HELLO"); learns &&
				len(got) != 0 {
				t.Errorf("learned %v too early", got)
			}
			conn.MarkDown()
			<-conn.Closed()
			b.Release()
			if err := conn.WaitReady(ctx); !errors.Is(err, control.ErrMarkedDown) {
				t.Errorf("WaitReady says %v", err)
			}
			if n := len(connector.Inbox.Lives()); n != 0 {
				t.Error("a connection without a session has an event")
			}
			// Nothing of it stands in the way of a new session.
			send(t, connector.Dial(acceptor), 2)
			receives(t, ctx, acceptor, 2)
			if lives := connector.Inbox.Lives(); len(lives) != 1 || lives[0].Conn == conn {
				t.Errorf("events of %+v", lives)
			}
			want := wire.Addr{Type: wire.AddrAny, Nonce: 2, AddrPort: loopback(0)}
			if got := connector.Addrs(); len(got) != 1 || got[0] != want {
				t.Errorf("learned %v, want %v", got, want)
			}
		})
}

// A connect that nobody answers.
// Matrix: SH-07
func TestShutdownEndsAConnectThatNobodyAnswers(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) { c.Timeouts.Handshake = time.Hour })
		dials := us.Probe.Arm(nodetest.MustPoint("SOCKET_CONNECTING"), 1, nodetest.Continue())
		conn := connect(t, us, swallow(t), wire.OSD)
		send(t, conn, 1)
		us.Hit(ctx, dials)
		if s := conn.State(); s != control.StateConnecting {
			t.Errorf("state %v", s)
		}
		shutsDown(t, us)
		if err := conn.WaitReady(ctx); !errors.Is(err, control.ErrShutdown) {
			t.Errorf("WaitReady: %v", err)
		}
	})
}

// A reader that its throttle holds back, and a sender whose queue is
// full and whose user waits for room.
// Matrix: SH-06, SH-07, SH-08
func TestShutdownEndsAThrottledReaderAndAFullQueue(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, readerFirst := range []bool{true, false} {
			var k keepsake
			reader := nodeOf(t, v, "osd.1", "LP", 1, withChain(k.dispatcher()),
				func(c *nodetest.NodeConfig) { c.Receiving.Bytes = 1000 })
			sender := nodeOf(t, v, "osd.2", "LP", 2, func(c *nodetest.NodeConfig) { c.Sending.QueueMessages = 8 })
			conn := sender.Dial(reader)
			ended := async(func() error { return pour(conn, 400) })
			theirs := first(t, ctx, reader)
			eventually(t, ctx, "the throttle", func() bool { return connStats(t, theirs).IO.Throttled })
			eventually(t, ctx, "a full queue", func() bool {
				st := connStats(t, conn)
				return st.IO.Queued+st.IO.Sent == 8
			})
			nodes := []*nodetest.Node{reader, sender}
			if !readerFirst {
				slices.Reverse(nodes)
			}
			for _, n := range nodes {
				shutsDown(t, n)
			}
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("SendContext: %v", err)
			}
			for k.letGo() {
			}
		}
	})
}

// What was received when a connection ends.

// slowReader takes messages on the queue's goroutine, one at a time: each call
// waits until the test lets it go on.
type slowReader struct {
	journal
	goOn chan struct{}
	over atomic.Int32 // calls
}

func newSlowReader() *slowReader { return &slowReader{goOn: make(chan struct{})} }

func (r *slowReader) tells(want ...string) bool { return slices.Equal(r.all(), want) }

// next lets one call go on.
func (r *slowReader) next(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case r.goOn <- struct{}{}:
	case <-ctx.Done():
		t.Fatalf("nothing is dispatched behind %v", r.all())
	}
}

func (r *slowReader) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		Queued: func(_ *control.Conn, m *control.Message) {
			r.add("%d", m.TID)
			<-r.goOn
			r.over.Add(1)
		},
		Reset: func(*control.Conn, bool) { r.add("reset") },
	}
}

// overdue is a lossy server whose client has sent three messages and hung up,
// while the first one is being dispatched.
func overdue(t *testing.T, ctx context.Context, v variant, r *slowReader) (server *control.Messenger,
	conn *control.Conn) {
	t.Helper()
	server, addr := plainServer(t, v, nil, r.dispatcher())
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Client, ID: "2"},
		Addr: wire.Addr{Nonce: 2, AddrPort: loopback(1)}, Rev0: v.rev0}, addr)
	p.Establish(0, 1)
	for n := range uint64(3) {
		p.SendMessage(frame.MessageHeader{Seq: n + 1, TID: n + 1}, nil, nil, nil)
	}
	must(t, p.Err())
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

// Three messages wait for Queued when their session ends, and the first is being dispatched.
// Matrix: INV-03, SH-09
func TestTheResetEventComesBehindWhatWaitsForQueuedUnlessTheUserEndsThat(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(ctx context.Context, server *control.Messenger, conn *control.Conn) error
		story []string
	}{
		{"nobody ends it", nil, []string{"1", "2", "3", "reset"}},
		{"MarkDown", func(_ context.Context, _ *control.Messenger, conn *control.Conn) error {
			conn.MarkDown()
			return nil
		}, []string{"1"}},
		{"Shutdown", func(ctx context.Context, server *control.Messenger, _ *control.Conn) error {
			short, cancel := context.WithCancel(ctx)
			cancel()
			if err := server.Shutdown(short); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("without time for a callback: %w", err)
			}
			return server.Shutdown(ctx)
		}, []string{"1"}},
		{"RemoveCore", func(ctx context.Context, server *control.Messenger, conn *control.Conn) error {
			_, err := server.AddCore(ctx)
			return errors.Join(err, server.RemoveCore(ctx, conn.Core().ID()))
		}, []string{"1", "reset"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				r := newSlowReader()
				server, conn := overdue(t, ctx, v, r)
				if err := conn.Send(control.NewMessage(1, nil, nil)); err == nil {
					t.Error("Send on a connection that is over")
				}
				ended := make(chan error, 1)
				if c.end == nil {
					ended <- nil
					for range 2 {
						r.next(t, ctx)
					}
					select {
					case <-conn.Closed():
						t.Error("closed while a message waits")
					default:
					}
				} else {
					go func() {
						err := c.end(ctx, server, conn)
						if c.name == "Shutdown" && r.over.Load() == 0 {
							err = errors.New("it does not wait for the dispatcher")
						}
						ended <- err
					}()
					<-conn.Closed() // without the message that is being dispatched
					if c.name == "Shutdown" {
						eventually(t, ctx, "the end of the cores", func() bool { _, err := server.Stats(); return err != nil })
					}
				}
				r.next(t, ctx)
				<-conn.Closed()
				must(t, <-ended)
				eventually(t, ctx, fmt.Sprint("the story of ", c.story), func() bool { return r.tells(c.story...) })
				must(t, server.Shutdown(ctx))
				if st, _ := server.Stats(); !r.tells(c.story...) || st.InFlight != 0 {
					t.Errorf("%v, and %d bytes are not released", r.all(), st.InFlight)
				}
			})
		})
	}
}

// Behind MarkDown nobody is told anything, the other dispatchers of the same event included. The peer
// of a connection that is marked down in its accept event gets no session.
// Matrix: INV-03
func TestNothingIsToldBehindAMarkDown(t *testing.T) {
	for _, atServer := range []bool{false, true} {
		everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
			told := make(chan struct{}, 8)
			down := &control.Dispatcher{Connect: func(c *control.Conn, _ int) { c.MarkDown() }}
			tells := &control.Dispatcher{
				Connect: func(*control.Conn, int) { told <- struct{}{} },
				Accept:  func(*control.Conn, int, bool) { told <- struct{}{} },
				Fast:    func(*control.Conn, *control.Message) bool { told <- struct{}{}; return true },
			}
			ofClient, ofServer := withChain(down, tells), withChain()
			if atServer {
				down = &control.Dispatcher{Accept: func(c *control.Conn, _ int, _ bool) { c.MarkDown() }}
				ofClient, ofServer = withChain(tells), withChain(down, tells)
			}
			server, client := nodeOf(t, v, "osd.1", "SFS", 1, ofServer), nodeOf(t, v, "client.2", "LLC", 2, ofClient)
			conn := client.Dial(server, control.Once())
			send(t, conn, 1)
			arrives(t, "the end of the connection", conn.Closed())
			if len(told) != 0 || atServer && len(server.Conns()) != 0 {
				t.Errorf("at the server %t: told %d times, the server has %d connections", atServer, len(told), len(server.Conns()))
			}
		})
	}
}
