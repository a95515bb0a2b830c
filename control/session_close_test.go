package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
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

// From every point. What was learned of our address or not is no obstacle for the next one.
// Matrix: SH-02, SH-12, HS-13
func TestMarkDownDuringAnAttemptIsFinal(t *testing.T) {
	everyPoint(t, nodetest.HandshakePoints(nodetest.Connector),
		func(t *testing.T, ctx context.Context, v variant, at nodetest.Point) {
			acceptor := nodeOf(t, v, "osd.1", "SFS", 1)
			connector := nodeOf(t, v, "client.2", "LLC", 2)
			b := connector.Probe.Arm(at, 1, nodetest.Block())
			conn := connector.Dial(acceptor)
			send(t, conn, 1)
			connector.Hit(ctx, b)
			if got := connector.Addrs(); at.Tag == frame.TagHello && len(got) != 0 {
				t.Errorf("learned %v too early", got)
			}
			conn.MarkDown()
			<-conn.Closed()
			b.Release()
			wantError(t, "WaitReady", conn.WaitReady(ctx), control.ErrMarkedDown)
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

// Matrix: SH-07
func TestShutdownEndsAConnectThatNobodyAnswers(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		us := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) { c.Timeouts.Handshake = time.Hour })
		dials := us.Probe.Arm(nodetest.SocketConnecting(), 1, nodetest.Continue())
		conn := connect(t, us, swallow(t), wire.OSD)
		send(t, conn, 1)
		us.Hit(ctx, dials)
		if s := conn.State(); s != control.StateConnecting {
			t.Errorf("state %v", s)
		}
		end(t, us.Messenger) // and not by the limit of a handshake, which is longer
		wantError(t, "WaitReady", conn.WaitReady(ctx), control.ErrShutdown)
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
				end(t, n.Messenger)
			}
			wantError(t, "SendContext", <-ended, net.ErrClosed)
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
	call := start(t, conn, "x")
	eventually(t, ctx, "the call", func() bool { return connStats(t, conn).IO.MessagesOut == 1 })
	p.Close()
	wantError(t, "a call, for which a dispatcher may wait", <-call, control.ErrSessionLost)
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

// heapBytes is what is in use once the collector has been there.
func heapBytes() int64 {
	for range 2 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever a peer does before it goes, nothing of it stays: no
// connection, no goroutine, no descriptor, no place among the half-open ones, and no
// memory that grows with the number of peers. Honest ones go on meanwhile.
// Matrix: SE-43, SH-16, HI-15, HI-31, RL-08, RL-12
func TestPeersThatComeAndGoAtOnceLeaveNothing(t *testing.T) {
	hello := nodetest.Read(frame.TagHello)
	for _, ending := range []struct {
		name string
		do   func(p *msgrtest.Peer)
	}{
		{"ident", func(p *msgrtest.Peer) {
			p.Handshake()
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(7, 1))
		}},
		{"no banner", func(p *msgrtest.Peer) { p.WriteRaw([]byte("GET / HTTP/1.1\r\n")) }},
		{"half a handshake", func(p *msgrtest.Peer) { p.HandshakeUntil(hello) }},
		{"a frame out of place", func(p *msgrtest.Peer) {
			p.Handshake()
			p.Send(frame.TagHello, make([]byte, 20))
		}},
		{"a target that is not there", func(p *msgrtest.Peer) {
			p.Handshake()
			ci := p.ClientIdent(7, 1)
			ci.TargetAddr = ci.TargetAddr.WithNonce(12345)
			p.SendPayload(frame.TagClientIdent, ci)
		}},
		{"a bad frame of a session", func(p *msgrtest.Peer) {
			p.Establish(7, 1)
			p.WriteRaw(make([]byte, 64))
		}},
	} {
		t.Run(ending.name, func(t *testing.T) {
			drivertest.LeavesNothing(t)
			for _, v := range newest {
				t.Run(v.String(), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), 40*sessionTime)
					defer cancel()
					server, addr := plainServer(t, v, func(c *control.Config) { c.Door.FailureRate = -1 })
					client := plainClient(t, v)
					conn := connect(t, client, addr, wire.OSD)
					must(t, conn.WaitReady(ctx))
					visit := func(i int) {
						p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
							Name: wire.EntityName{Type: wire.Client, ID: "x"}, Number: int64(i), Addr: wire.Addr{Type: wire.AddrAny, Nonce: uint32(i + 1), AddrPort: loopback(0)}, Rev0: v.rev0,
						}, addr)
						ending.do(p)
						if i%2 == 0 {
							p.Reset()
						} else {
							p.Close()
						}
					}
					gone := func() {
						eventually(t, ctx, "the last of them to be gone", func() bool {
							st, err := server.Stats()
							return err == nil && st.Open == 1 && st.HalfOpen == 0
						})
					}
					rounds := inLongForm(84_000, 150) // times six endings and two engines: a million
					for i := range rounds / 3 {
						visit(i)
					}
					gone()
					before := heapBytes()
					for i := range rounds {
						visit(i)
					}
					gone()
					limit, grown := 1<<20+int64(rounds)*16, func() int64 { return heapBytes() - before }
					// A core frees in seconds what a burst has needed.
					if msgrtest.Until(deadline(t), func() bool { return grown() <= limit }) != nil {
						t.Errorf("%d bytes more after %d peers", grown(), rounds)
					}
					if c := conn.State(); c != control.StateReady {
						t.Errorf("the honest connection is %v", c)
					}
				})
			}
		})
	}
}

// The data phase needs no goroutine of a connection.
// Matrix: RL-10
func TestEstablishedConnectionsHaveNoGoroutines(t *testing.T) {
	for _, v := range newest {
		t.Run(v.String(), func(t *testing.T) {
			ctx := deadline(t)
			const n = 200
			server, addr := plainServer(t, v, func(c *control.Config) { c.Door.FailureRate = -1 })
			client := plainClient(t, v)
			connect := func(n int) { openIdle(t, ctx, server, client, addr, n) }
			connect(1)
			var before int
			eventually(t, ctx, "the first handshake to be gone", func() bool {
				now := runtime.NumGoroutine()
				same := now == before
				before = now
				return same
			})
			connect(n)
			eventually(t, ctx, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

// While the process is out of descriptors, who connects waits, what is
// connected goes on, the log says so once; when descriptors come back, so do
// the connections. It never gives up.
// Matrix: SH-13, RL-05
func TestAcceptRecoversWhenDescriptorsComeBack(t *testing.T) {
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			ctx := deadline(t)
			// A ring takes note of the limit when an accept is armed.
			exhaust := drivertest.LowerLimit(t)
			var log logText
			server := startMessenger(t, control.Config{
				Name:  wire.EntityName{Type: wire.OSD, ID: "1"},
				Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
				// The messenger says what it does with each; this is about the rest.
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
			}, echoer())
			host := ownHost()
			addrs := bind(t, server, v2(host, 6800))
			client := nodeOf(t, variant{backend: backend}, "client.2", "LC", 2)
			conn := connect(t, client, addrs[0], wire.OSD)
			send(t, conn, 1)
			receives(t, ctx, client, 1001)

			const late = 5
			var sockets [late]int
			for i := range sockets {
				var err error
				sockets[i], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				must(t, err)
			}
			restore := exhaust()
			for _, s := range sockets {
				check(t, unix.Connect(s, &unix.SockaddrInet4{Port: 6800, Addr: host.As4()}))
			}
			stats := func() dataplane.CoreStats { return statsOf(t, server).Cores[0] }
			if err := msgrtest.Until(ctx, func() bool { return stats().AcceptErrors >= 3 }); err != nil {
				t.Fatalf("no third attempt to accept: %+v\n%s", stats(), log.String())
			}
			send(t, conn, 2)
			receives(t, ctx, client, 1001, 1002)
			if n := stats().Accepts; n != 1 {
				t.Errorf("%d accepted", n)
			}
			restore()
			for _, s := range sockets {
				f := os.NewFile(uintptr(s), "late")
				check(t, unix.SetNonblock(s, false))
				banner := make([]byte, 26)
				if _, err := io.ReadFull(f, banner); err != nil || !bytes.HasPrefix(banner, []byte("ceph v2\n")) {
					t.Errorf("banner %q, %v", banner, err)
				}
				_ = f.Close()
			}
			text := log.String()
			if strings.Count(text, "not accepted") != 1 || strings.Count(text, "accepted again") != 1 {
				t.Errorf("the log says:\n%s", text)
			}
		})
	}
}
