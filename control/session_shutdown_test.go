package control_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
)

// shutsDown must end, and not by the limit of a handshake, which is longer.
func shutsDown(t *testing.T, n *msgrtest.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		t.Errorf("%s: %v", n.Name(), err)
	}
}

// blackHole is an address that drops every SYN: the queue of its listener is
// full.
func blackHole(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	host := ownHost()
	at := &unix.SockaddrInet4{Port: 7000, Addr: host.As4()}
	if err := errors.Join(unix.Bind(fd, at), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(s) })
		if err := unix.Connect(s, at); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
	}
	return netip.AddrPortFrom(host, 7000)
}

// SH-07: a connect that nobody answers.
func TestShutdownEndsAConnectThatNobodyAnswers(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		at := blackHole(t)
		us := nodeOf(t, v, "osd.1", "LP", 1, func(c *msgrtest.NodeConfig) { c.HandshakeTimeout = time.Hour })
		dials := us.Probe.Arm(msgrtest.MustPoint("SOCKET_CONNECTING"), 1, msgrtest.Continue())
		conn, err := us.Connect(v2(at.Addr(), at.Port()), wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
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

// SH-07: a reader that its throttle holds back, and a sender whose queue is
// full and whose user waits for room.
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
			}}), func(c *msgrtest.NodeConfig) { c.DispatchBytes = 1000 })
			sender := nodeOf(t, v, "osd.2", "LP", 2, func(c *msgrtest.NodeConfig) { c.QueueMessages = 8 })
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

// SH-07: a callback of authentication that takes its time, on either side.
func TestShutdownEndsACallbackOfAuthentication(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		for _, side := range []string{"server", "client"} {
			s := newSlow(true)
			acceptor := nodeOf(t, v, "osd.1", "SFS", 1, func(c *msgrtest.NodeConfig) {
				c.HandshakeTimeout = time.Hour
				c.AuthServer = slowServer{none.NewServer(none.ServerConfig{}), s, "2"}
			})
			connector := nodeOf(t, v, "client.2", "LLC", 2, func(c *msgrtest.NodeConfig) { c.HandshakeTimeout = time.Hour })
			send(t, connector.Dial(acceptor), 1)
			<-s.entered
			if side == "server" {
				shutsDown(t, acceptor)
				shutsDown(t, connector)
			} else {
				shutsDown(t, connector)
				shutsDown(t, acceptor)
			}
		}
	})
}

// SH-07: a zero-copy send that the peer does not take.
func TestShutdownEndsAZeroCopySendThatIsUnfinished(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		l, err := msgrtest.ListenPeer(msgrtest.PeerConfig{Name: wire.EntityName{Type: wire.OSD, ID: "3"}, Number: 3, Addr: wire.Addr{Nonce: 3}, Rev0: v.rev0})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		us := nodeOf(t, v, "client.2", "LLC", 2, func(c *msgrtest.NodeConfig) { c.Plane.ZeroCopyFrom = 4096 })
		conn, err := us.Connect(l.Addr, wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		p := l.Accept(ctx)
		p.Handshake()
		p.ExpectClientIdent()
		p.SendPayload(frame.TagServerIdent, p.ServerIdent(9, 1))
		if p.Err() != nil {
			t.Fatal(p.Err())
		}
		defer p.Close()
		var freed atomic.Int32
		const messages = 16
		for range messages { // more than sockets hold
			m := control.NewMessage(1, nil, make([]byte, 1<<20))
			m.Free = func(*control.Message) { freed.Add(1) }
			if err := conn.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, ctx, "a write in flight", func() bool {
			st, err := conn.Stats()
			return err == nil && st.IO.Writing && st.IO.Sent > 0
		})
		shutsDown(t, us)
		if n := freed.Load(); n != messages {
			t.Errorf("%d of %d messages are free", n, messages)
		}
	})
}

// SH-07: a session that is being given another socket, and one more that waits
// for that.
func TestShutdownEndsAReplacementUnderWay(t *testing.T) {
	for _, at := range points("SESSION_RECONNECT_OK_WRITE SERVER_IDENT_WRITE") {
		t.Run(msgrtest.PointName(at), func(t *testing.T) {
			everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
				acceptor := nodeOf(t, v, "osd.1", "SFS", 1, func(c *msgrtest.NodeConfig) { c.Plane.Cores = 2 })
				connector := nodeOf(t, v, "client.2", "LLC", 2)
				conn := connector.Dial(acceptor)
				if err := conn.WaitReady(ctx); err != nil {
					t.Fatal(err)
				}
				b := acceptor.Probe.ArmNext(at, msgrtest.Block())
				if at.Tag == frame.TagServerIdent {
					// The connector has forgotten the session: CLIENT_IDENT takes it over.
					conn.MarkDown()
					connector.Dial(acceptor)
				} else {
					connector.Probe.ArmNext(msgrtest.Write(frame.TagMessage), msgrtest.Fault())
					send(t, conn, 1)
				}
				acceptor.Hit(ctx, b)
				if c := first(t, ctx, acceptor); c.State() != control.StateReplacing {
					t.Errorf("state %v", c.State())
				}
				shutsDown(t, acceptor)
				shutsDown(t, connector)
			})
		})
	}
}

// SH-09, with a goroutine of the user's dispatcher that is busy: nobody is
// called behind Shutdown, and nothing waits to be dispatched.
func TestNothingIsDispatchedBehindShutdown(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		var over atomic.Bool
		entered, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		us := startMessengerWith(t, v, &control.Dispatcher{Queued: func(*control.Conn, *control.Message) {
			if over.Load() {
				t.Error("dispatched behind Shutdown")
			}
			once.Do(func() { close(entered); <-release })
		}})
		addrs, err := us.Bind(v2(ownHost(), 0))
		if err != nil {
			t.Fatal(err)
		}
		client := nodeOf(t, v, "client.2", "LC", 2)
		conn, err := client.Connect(addrs[0], wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
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
		if err := us.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		over.Store(true)
		if st, _ := us.Stats(); st.InFlight != 0 {
			t.Errorf("%d bytes wait to be dispatched", st.InFlight)
		}
	})
}

func startMessengerWith(t *testing.T, v variant, d *control.Dispatcher) *control.Messenger {
	t.Helper()
	cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: dataplane.Config{Cores: 1}}
	v.configure(&cfg)
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, m) })
	if err := m.Start(d); err != nil {
		t.Fatal(err)
	}
	return m
}

// SH-05: two servers share a dispatcher that marks connections of the other one
// down from inside its callbacks. The client goes on making progress.
func TestMarkingOthersDownInDispatchNeverStopsProgress(t *testing.T) {
	rounds := 100
	if os.Getenv("RINGMSGR_LONG") != "" {
		rounds = 1000
	}
	everyVariant(t, func(t *testing.T, _ context.Context, v variant) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*sessionTime)
		defer cancel()
		var mu sync.Mutex
		var dispatched, downs int
		last := make(map[wire.EntityName]*control.Conn) // by server
		rng := rand.New(rand.NewPCG(1, 2))
		shared := func(own, other wire.EntityName) *control.Dispatcher {
			note := func(c *control.Conn) {
				mu.Lock()
				defer mu.Unlock()
				last[own] = c
			}
			return &control.Dispatcher{
				Accept: func(c *control.Conn, _ int, _ bool) { note(c) },
				Fast: func(c *control.Conn, m *control.Message) bool {
					mu.Lock()
					dispatched++
					var victim *control.Conn
					if rng.IntN(2) == 0 {
						victim = last[other]
						delete(last, other)
					}
					if victim != nil {
						downs++
					}
					mu.Unlock()
					if victim != nil {
						victim.MarkDown()
					}
					return true
				},
			}
		}
		a, b := wire.EntityName{Type: wire.OSD, ID: "1"}, wire.EntityName{Type: wire.OSD, ID: "2"}
		servers := []*msgrtest.Node{
			nodeOf(t, v, "osd.1", "SLS", 1, withChain(shared(a, b))),
			nodeOf(t, v, "osd.2", "SLS", 2, withChain(shared(b, a))),
		}
		client := nodeOf(t, v, "client.3", "LC", 3)
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return dispatched
		}
		still := 0
		for round := range rounds {
			before := count()
			var conns []*control.Conn
			for _, s := range servers {
				c := client.Dial(s)
				conns = append(conns, c)
				m := control.NewMessage(1, nil, nil)
				m.TID = uint64(round)
				if c.Send(m) != nil {
					m.Release()
				}
			}
			// Each message arrives, or its connection is over.
			eventually(t, ctx, "the end of a round", func() bool {
				if count() >= before+len(conns) {
					return true
				}
				for _, c := range conns {
					if c.State() == control.StateClosing {
						return true
					}
				}
				return false
			})
			if count() > before {
				still = 0
			} else if still++; still > 3 {
				t.Fatalf("no progress in %d rounds", still)
			}
		}
		if downs == 0 {
			t.Error("nothing was marked down")
		}
	})
}
