package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// unixPair is a connected pair of Unix sockets.
func unixPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// server is the configuration of one generation of an echo.
func serverConfig(backend uring.Backend, cores int) control.Config {
	stateless, peer := control.StatelessServer(), control.LosslessPeer()
	stateful := control.StatefulServer()
	return control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &stateless,
		Policies: map[wire.EntityType]control.Policy{wire.OSD: peer, wire.MDS: stateful},
		Plane:    loop.Config{Cores: cores, Driver: uring.Config{Backend: backend}},
	}
}

// queuedEcho answers on the goroutine of the connection.
func queuedEcho(t *testing.T) *control.Dispatcher {
	return &control.Dispatcher{Queued: func(c *control.Conn, m *control.Message) {
		m.Retain()
		if err := c.Send(m); err != nil {
			m.Release()
			if errors.Is(err, control.ErrHandedOver) {
				t.Error("a reply came too late for the hand-over")
			}
		}
	}}
}

// succeed hands m over to a new messenger.
func succeed(t *testing.T, ctx context.Context, m *control.Messenger, cfg control.Config, chain ...*control.Dispatcher) *control.Messenger {
	t.Helper()
	a, b := unixPair(t)
	handed := async(func() error { return m.HandOver(ctx, a) })
	next, err := control.TakeOver(ctx, cfg, b, chain...)
	if e := <-handed; err != nil || e != nil {
		t.Fatalf("take over: %v; hand over: %v", err, e)
	}
	return next
}

// Matrix: IN-07, V1-12
func TestHandOverUnderLoadLosesNothing(t *testing.T) {
	nodetest.CheckLeaks(t)
	for _, c := range []struct {
		backend uring.Backend
		cores   []int // of the generations
		msgr1   bool
	}{
		{backend: uring.Auto, cores: []int{1, 1, 1}}, {backend: uring.Epoll, cores: []int{1, 1, 1}},
		{backend: uring.Auto, cores: []int{2, 2, 2}}, {backend: uring.Epoll, cores: []int{2, 2, 2}},
		{backend: uring.Auto, cores: []int{1, 2, 1, 3, 2}}, {backend: uring.Epoll, cores: []int{3, 1, 2, 4}},
		{backend: uring.Auto, cores: []int{2, 1, 2}, msgr1: true}, {backend: uring.Epoll, cores: []int{1, 2, 1}, msgr1: true},
	} {
		t.Run(fmt.Sprint(c.backend, c.cores, c.msgr1), func(t *testing.T) {
			ctx := deadline(t)
			m, err := control.New(serverConfig(c.backend, c.cores[0]))
			must(t, err)
			echo := echoAll()
			if c.cores[0] == 2 {
				echo = queuedEcho(t)
			}
			must(t, m.Start(echo))
			at := wire.AddrVec{{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}}
			if c.msgr1 { // behind the other protocol, so that each passes with its listeners
				at = append(at, at[0].WithType(wire.AddrLegacy))
			}
			addrs := bind(t, m, at...)
			to := addrs[len(addrs)-1]
			streams := []*stream{
				newStream(t, c.backend, wire.OSD, control.LosslessPeer(), to),
				newStream(t, c.backend, wire.MDS, control.LosslessClient(), to),
			}
			knock := newKnocker(t, to)
			var old []*control.Messenger
			for _, cores := range c.cores[1:] {
				for _, s := range streams {
					s.progress(50)
				}
				next := succeed(t, ctx, m, serverConfig(c.backend, cores), echo)
				if got := next.Addrs(); !got.Equal(addrs) {
					t.Errorf("addresses %v, want %v", got, addrs)
				}
				if n := len(next.Conns()); n != 2 {
					t.Errorf("%d sessions passed, want 2", n)
				}
				old = append(old, m)
				m = next
			}
			for _, s := range streams {
				s.progress(50)
				s.end()
				if n := s.m.Conns(); len(n) != 1 || n[0] != s.c {
					t.Errorf("%v has %d connections", s.m.Name(), len(n))
				}
			}
			knock.end()
			for _, m := range append(old, m) {
				st, err := m.Stats()
				check(t, err)
				if st.Counters.IllegalTransitions != 0 || st.Counters.ResetsSent != 0 {
					t.Errorf("%+v", st.Counters)
				}
				end(t, m)
			}
		})
	}
}

// A message for which Send returned nil arrives, also if it was sent while the
// hand-over began.
func TestSendDuringAHandOverIsKeptOrRefused(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	var mu sync.Mutex
	seen := make(map[uint64]bool) // guarded by mu
	arrived := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return uint64(len(seen))
	}
	policy := control.LosslessPeer()
	cfg := serverConfig(uring.Auto, 1)
	cfg.Name.ID, cfg.Default = "5", &policy
	peer := newMessenger(t, cfg)
	if err := peer.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[m.TID] = true
		return true
	}}); err != nil {
		t.Fatal(err)
	}
	addrs := bind(t, peer, wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	// The bound: the sender is never far ahead of the peer, however fast it is.
	bounded := serverConfig(uring.Auto, 1)
	bounded.Sending.QueueMessages = 1000
	m := serveEcho(t, bounded)
	var sent uint64
	for range 5 {
		c := connect(t, m, addrs[0], wire.OSD)
		kept := make(chan uint64)
		go func(n uint64) {
			for {
				msg := numbered(n, control.NewMessage(1, nil, nil))
				switch err := c.Send(msg); {
				case err == nil:
					n++
				case errors.Is(err, control.ErrQueueFull):
					runtime.Gosched()
				case errors.Is(err, control.ErrHandedOver):
					kept <- n
					return
				default:
					t.Error(err)
					kept <- n
					return
				}
			}
		}(sent)
		eventually(t, ctx, "some that are on their way", func() bool { return arrived() > sent })
		next := succeed(t, ctx, m, bounded)
		defer end(t, next)
		sent, m = <-kept, next
	}
	eventually(t, ctx, "all that were sent", func() bool { return arrived() == sent })
}
