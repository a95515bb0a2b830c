package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// Matrix: SH-01
func TestMarkDownIsImmediateAndDropsTheQueue(t *testing.T) {
	for _, p := range pairings {
		t.Run(p.connector+"-"+p.acceptor, func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				acceptor := nodeOf(t, v, "osd.1", p.acceptor, 1)
				connector := nodeOf(t, v, connectorName(p.connector), p.connector, 2)
				conn := connector.Dial(acceptor)
				send(t, conn, 1)
				receives(t, ctx, acceptor, 1)
				settled(t, ctx, conn)
				hold := connector.Probe.ArmNext(nodetest.Write(frame.TagMessage), nodetest.Block())
				var freed atomic.Int64
				for tid := range uint64(10) {
					m := control.NewMessage(1, nil, nil)
					m.TID, m.Free = 100+tid, func(*control.Message) { freed.Add(1) }
					must(t, conn.Send(m))
				}
				connector.Hit(ctx, hold)
				conn.MarkDown()
				if err := conn.Send(control.NewMessage(1, nil, nil)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("send afterwards: %v", err)
				}
				<-conn.Closed()
				if n := freed.Load(); n != 10 {
					t.Errorf("%d of 10 queued messages released", n)
				}
				connector.Await(ctx, "closed C(1,1,0,1)")
				if p.lossy() {
					acceptor.Await(ctx, "closed A(1,1,0,1) R(1,0)")
				} else {
					acceptor.Await(ctx, "standby A(1,1,0,1)")
				}
				receives(t, ctx, acceptor, 1)
			})
		})
	}
}

// From every point. What was learned of our address or not is no obstacle for the next one.
// Matrix: SH-02, SH-12, HS-13
func TestMarkDownDuringAnAttemptIsFinal(t *testing.T) {
	everyPoint(t, connectPoints+" CLIENT_IDENT_WRITE SERVER_IDENT_READ", func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
		acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
		connector := nodeOf(t, v, "client.2", "LLC", 2)
		b := connector.Probe.Arm(at, 1, nodetest.Block())
		conn := connector.Dial(acceptor)
		send(t, conn, 1)
		connector.Hit(ctx, b)
		if got, learns := connector.Addrs(), strings.HasPrefix(nodetest.PointName(at), "HELLO"); learns && len(got) != 0 {
			t.Errorf("learned %v too early", got)
		}
		conn.MarkDown()
		<-conn.Closed()
		b.Release()
		if err := conn.WaitReady(ctx); !errors.Is(err, control.ErrMarkedDown) {
			t.Errorf("WaitReady says %v", err)
		}
		idents := "0"
		if at.Tag == frame.TagClientIdent || at.Tag == frame.TagServerIdent {
			idents = "1"
		}
		connector.Await(ctx, "closed C(1,"+idents+",0,0)")
		// Nothing of it stands in the way of a new session.
		send(t, connector.Dial(acceptor), 2)
		receives(t, ctx, acceptor, 2)
		connector.Await(ctx, "closed C(1,"+idents+",0,0)", "established C(1,1,0,1)")
		want := wire.Addr{Type: wire.AddrAny, Nonce: 2, AddrPort: loopback(0)}
		if got := connector.Addrs(); len(got) != 1 || got[0] != want {
			t.Errorf("learned %v, want %v", got, want)
		}
	})
}

// SH-02, the other side: in ESTABLISHING and in REPLACING.
// Matrix: SH-02
func TestMarkDownDuringAnAcceptanceIsFinal(t *testing.T) {
	for _, at := range points("SERVER_IDENT_WRITE SESSION_RECONNECT_OK_WRITE") {
		t.Run(nodetest.PointName(at), func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
				connector := nodeOf(t, v, "client.2", "LLC", 2)
				if at.Tag == frame.TagSessionReconnectOK {
					connector.Probe.Arm(nodetest.Write(frame.TagMessage), 1, nodetest.Fault())
				}
				b := acceptor.Probe.Arm(at, 1, nodetest.Block())
				send(t, connector.Dial(acceptor), 1)
				acceptor.Hit(ctx, b)
				theirs := first(t, ctx, acceptor)
				theirs.MarkDown()
				<-theirs.Closed()
				b.Release()
				// The connector comes back to a server that has forgotten it, and a
				// session that it had is reset.
				eventually(t, ctx, "a new session", func() bool {
					conns := acceptor.Conns()
					return len(conns) == 1 && conns[0] != theirs && conns[0].State() == control.StateReady
				})
				for i, o := range acceptor.Probe.Objects() {
					if o.Resets+o.RemoteResets != 0 || o.Conn == theirs && o.End != nodetest.Closed {
						t.Errorf("object %d: %v", i, o)
					}
				}
			})
		})
	}
}

// Senders without pause, and each order of shutdowns.
// Matrix: SH-06, SH-08
func TestShutdownUnderLoadEnds(t *testing.T) {
	for _, order := range []string{"client first", "server first", "both at once"} {
		t.Run(order, func(t *testing.T) {
			everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
				for _, p := range []pairing{{"LC", "SLS"}, {"LP", "LP"}} {
					acceptor := nodeOf(t, v, "osd.1", p.acceptor, 1, withChain(echoer()))
					connector := nodeOf(t, v, connectorName(p.connector), p.connector, 2, func(c *nodetest.NodeConfig) { c.Sending.QueueMessages = 64 })
					conn := connector.Dial(acceptor)
					var senders sync.WaitGroup
					for range 4 {
						senders.Go(func() {
							for tid := uint64(1); ; tid++ {
								m := control.NewMessage(1, nil, make([]byte, 512))
								m.TID = tid % 900
								if err := conn.SendContext(ctx, m); err != nil {
									m.Release()
									if !errors.Is(err, net.ErrClosed) {
										t.Errorf("%s: send ended with %v", p.connector, err)
									}
									return
								}
							}
						})
					}
					awaitTID(t, ctx, acceptor, 20)
					down := func(n *nodetest.Node) {
						end, cancel := context.WithTimeout(context.Background(), time.Minute)
						defer cancel()
						if err := n.Shutdown(end); err != nil {
							t.Errorf("%s: %v", n.Name(), err)
						}
					}
					switch order {
					case "client first":
						down(connector)
						down(acceptor)
					case "server first":
						down(acceptor)
						down(connector)
					default:
						var both sync.WaitGroup
						both.Go(func() { down(connector) })
						both.Go(func() { down(acceptor) })
						both.Wait()
					}
					senders.Wait()
					// SH-09: nobody is called any more.
					n := len(acceptor.Inbox.TIDs())
					if _, err := connector.Connect(acceptor.Addr, wire.OSD); !errors.Is(err, control.ErrShutdown) {
						t.Errorf("Connect after Shutdown: %v", err)
					}
					if got := len(acceptor.Inbox.TIDs()); got != n {
						t.Errorf("%d messages dispatched after Shutdown", got-n)
					}
				}
			})
		})
	}
}

// shutsDown must end, and not by the limit of a handshake, which is longer.
func shutsDown(t *testing.T, n *nodetest.Node) {
	t.Helper()
	ctx := deadline(t)
	if err := n.Shutdown(ctx); err != nil {
		t.Errorf("%s: %v", n.Name(), err)
	}
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
// Matrix: SH-07
func TestShutdownEndsAThrottledReaderAndAFullQueue(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, first := range []string{"reader", "sender"} {
			var mu sync.Mutex
			var kept []*control.Message
			reader := nodeOf(t, v, "osd.1", "LP", 1, withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
				m.Retain()
				mu.Lock()
				defer mu.Unlock()
				kept = append(kept, m)
				return true
			}}), func(c *nodetest.NodeConfig) { c.Receiving.Bytes = 1000 })
			sender := nodeOf(t, v, "osd.2", "LP", 2, func(c *nodetest.NodeConfig) { c.Sending.QueueMessages = 8 })
			conn := sender.Dial(reader)
			ended := make(chan error, 1)
			go func() {
				for {
					m := control.NewMessage(1, nil, make([]byte, 400))
					if err := conn.SendContext(context.Background(), m); err != nil {
						m.Release()
						ended <- err
						return
					}
				}
			}()
			eventually(t, ctx, "the throttle", func() bool {
				for _, c := range reader.Conns() {
					if st, err := c.Stats(); err == nil && st.IO.Throttled {
						return true
					}
				}
				return false
			})
			eventually(t, ctx, "a full queue", func() bool {
				st, err := conn.Stats()
				return err == nil && st.IO.Queued+st.IO.Sent == 8
			})
			if first == "reader" {
				shutsDown(t, reader)
				shutsDown(t, sender)
			} else {
				shutsDown(t, sender)
				shutsDown(t, reader)
			}
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("SendContext: %v", err)
			}
			for _, m := range kept {
				m.Release()
			}
		}
	})
}

// SH-09, with a goroutine of the user's dispatcher that is busy: nobody is
// called behind Shutdown, and nothing waits to be dispatched.
// Matrix: SH-09
func TestNothingIsDispatchedBehindShutdown(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var over atomic.Bool
		entered, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		us, addr := plainServer(t, v, nil, &control.Dispatcher{Queued: func(*control.Conn, *control.Message) {
			if over.Load() {
				t.Error("dispatched behind Shutdown")
			}
			once.Do(func() { close(entered); <-release })
		}})
		client := nodeOf(t, v, "client.2", "LC", 2)
		conn := connect(t, client, addr, wire.OSD)
		for tid := range uint64(50) {
			send(t, conn, tid)
		}
		<-entered
		short, cancel := context.WithCancel(ctx)
		cancel()
		if err := us.Shutdown(short); !errors.Is(err, context.Canceled) {
			t.Errorf("Shutdown with a callback that blocks: %v", err)
		}
		close(release)
		must(t, us.Shutdown(ctx))
		over.Store(true)
		if st, _ := us.Stats(); st.InFlight != 0 {
			t.Errorf("%d bytes wait to be dispatched", st.InFlight)
		}
	})
}

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
	server, addr := plainServer(t, v, nil, r.dispatcher())
	p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.Client, ID: "2"}, Addr: wire.Addr{Nonce: 2, AddrPort: loopback(1)}, Rev0: v.rev0}, addr)
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

// Matrix: INV-03
func TestTheResetEventComesBehindWhatWaitsForQueued(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
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
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
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
		ended := async(func() error { return server.Shutdown(ctx) })
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

// Behind MarkDown nobody is told anything, the other dispatchers of the same
// event included.
// Matrix: INV-03
func TestNothingIsToldBehindAMarkDown(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		told := make(chan struct{}, 8)
		server := nodeOf(t, v, "osd.1", "SFS", 1)
		client := nodeOf(t, v, "client.2", "LLC", 2, withChain(
			&control.Dispatcher{Connect: func(c *control.Conn, _ int) { c.MarkDown() }},
			&control.Dispatcher{Connect: func(*control.Conn, int) { told <- struct{}{} }},
		))
		conn := client.Dial(server)
		arrives(t, "the end of the connection", conn.Closed())
		if len(told) != 0 {
			t.Error("a dispatcher heard of a connection that was marked down")
		}
	})
}
