package control_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// shutsDown must end, and not by the limit of a handshake, which is longer.
func shutsDown(t *testing.T, n *nodetest.Node) {
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

// A connect that nobody answers.
// Matrix: SH-07
func TestShutdownEndsAConnectThatNobodyAnswers(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		at := blackHole(t)
		us := nodeOf(t, v, "osd.1", "LP", 1, func(c *nodetest.NodeConfig) { c.Timeouts.Handshake = time.Hour })
		dials := us.Probe.Arm(nodetest.MustPoint("SOCKET_CONNECTING"), 1, nodetest.Continue())
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
	cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: loop.Config{Cores: 1}}
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
