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
	"sync/atomic"
	"testing"
	"time"

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

// stream is a client that sends numbered messages, some in flight, and checks
// that the echoes come exactly once and in order.
type stream struct {
	t    *testing.T
	m    *control.Messenger
	c    *control.Conn
	next atomic.Uint64 // echo expected
	room chan struct{}
	stop chan struct{}
	sent uint64
	once sync.Once
	done sync.WaitGroup
}

func newStream(t *testing.T, backend uring.Backend, typ wire.EntityType, policy control.Policy, to wire.Addr) *stream {
	t.Helper()
	s := &stream{t: t, room: make(chan struct{}, 16), stop: make(chan struct{})}
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: typ, ID: "7"}, Default: &policy,
		Plane:    loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
		Timeouts: control.Timeouts{InitialBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond},
	})
	must(t, err)
	s.m = m
	must(t, m.Start(&control.Dispatcher{Fast: s.echoed}))
	if policy.Standby {
		if _, err := m.Bind(wire.Addr{Type: to.Type, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}); err != nil {
			t.Fatal(err)
		}
	}
	s.c, err = m.Connect(to, wire.OSD)
	must(t, err)
	ctx := deadline(t)
	must(t, s.c.WaitReady(ctx))
	s.done.Go(s.send)
	t.Cleanup(func() { s.end(); end(t, m) })
	return s
}

func (s *stream) echoed(_ *control.Conn, m *control.Message) bool {
	if want := s.next.Add(1) - 1; m.TID != want || string(m.Front) != fmt.Sprint(want) {
		s.t.Errorf("echo %d %q, want %d", m.TID, m.Front, want)
	}
	<-s.room
	return true
}

func (s *stream) send() {
	for {
		select {
		case <-s.stop:
			return
		case s.room <- struct{}{}:
		}
		m := control.NewMessage(9, fmt.Append(nil, s.sent), nil)
		if s.sent%64 == 7 {
			m.Data = make([]byte, 100<<10)
		}
		m.TID = s.sent
		s.sent++
		if err := s.c.Send(m); err != nil {
			s.t.Errorf("send %d: %v", m.TID, err)
			return
		}
	}
}

// progress waits for n more echoes.
func (s *stream) progress(n uint64) {
	s.t.Helper()
	s.until(s.next.Load() + n)
}

func (s *stream) until(n uint64) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); s.next.Load() < n; <-tick.C {
		if time.Now().After(deadline) {
			st, _ := s.c.Stats()
			s.t.Fatalf("%v: echo %d of %d: state %v, err %v\n%+v", s.m.Name(), s.next.Load(), n, s.c.State(), s.c.Err(), st)
		}
	}
}

// end stops sending and waits for all echoes.
func (s *stream) end() {
	s.once.Do(func() {
		close(s.stop)
		s.done.Wait()
		s.until(s.sent)
	})
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

// knocker connects all the time: no connect may be refused.
type knocker struct {
	stop chan struct{}
	done sync.WaitGroup
	n    atomic.Uint64
}

func newKnocker(t *testing.T, to wire.Addr) *knocker {
	k := &knocker{stop: make(chan struct{})}
	k.done.Go(func() {
		for {
			select {
			case <-k.stop:
				return
			default:
			}
			c, err := net.DialTimeout("tcp", to.AddrPort.String(), time.Minute)
			if err != nil {
				t.Errorf("connect %d: %v", k.n.Load(), err)
				return
			}
			// The banner says that somebody has accepted it.
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			var b [8]byte
			if _, err := c.Read(b[:]); err != nil {
				t.Errorf("connection %d lost: %v", k.n.Load(), err)
			}
			_ = c.Close()
			k.n.Add(1)
		}
	})
	t.Cleanup(k.end)
	return k
}

func (k *knocker) end() {
	select {
	case <-k.stop:
	default:
		close(k.stop)
	}
	k.done.Wait()
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
	m, _ := serveEcho(t, bounded)
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
