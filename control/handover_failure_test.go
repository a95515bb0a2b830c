package control_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// handoverServer is a bound echo.
func handoverServer(t *testing.T, backend uring.Backend, cores int) (*control.Messenger, wire.Addr) {
	t.Helper()
	return serveEcho(t, serverConfig(backend, cores))
}

func serveEcho(t *testing.T, cfg control.Config) (*control.Messenger, wire.Addr) {
	t.Helper()
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, m) })
	if err := m.Start(echoAll()); err != nil {
		t.Fatal(err)
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: msgrtest.ReservePort(t)})
	if err != nil {
		t.Fatal(err)
	}
	return m, addrs[0]
}

func TestSuccessorThatFailsLeavesThePredecessorServing(t *testing.T) {
	nodetest.CheckLeaks(t)
	spread(t, len(engines), len(engines), func(i int) string { return string(engines[i]) },
		func(t *testing.T, i int) {
			backend := engines[i]
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			m, addr := handoverServer(t, backend, 2)
			peer := newStream(t, backend, wire.OSD, control.LosslessPeer(), addr)
			client := newStream(t, backend, wire.MDS, control.LosslessClient(), addr)
			lossy := newStream(t, backend, wire.Client, control.LossyClient(), addr)
			knock := newKnocker(t, addr)
			for step := range control.StopSteps {
				a, b := unixPair(t)
				late, fake := make(chan struct{}), make(chan error, 1)
				go func() { fake <- control.BreakSuccession(ctx, m, b, step, late) }()
				limit := time.Minute
				if step == control.StopSilent {
					limit = time.Second
				}
				handCtx, stop := context.WithTimeout(ctx, limit)
				err := m.HandOver(handCtx, a)
				stop()
				close(late)
				lateErr := <-fake
				if !errors.Is(err, control.ErrHandOver) {
					t.Errorf("step %d: hand-over ends with %v", step, err)
				}
				switch step {
				case control.StopAtReady:
					if !strings.Contains(err.Error(), "no room") {
						t.Errorf("refusal reported as %v", err)
					}
				case control.StopSilent:
					if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(lateErr, syscall.EPIPE) {
						t.Errorf("silent successor: %v; its late commit: %v", err, lateErr)
					}
				}
				peer.progress(50)
				client.progress(50)
				lossy.progress(50)
			}
			knock.end()
			if st, err := m.Stats(); err != nil || st.Counters.IllegalTransitions != 0 {
				t.Errorf("%+v, %v", st.Counters, err)
			}
			next := succeed(t, ctx, m, serverConfig(backend, 2), echoAll())
			defer end(t, next)
			peer.progress(50)
			client.progress(50)
			lossy.progress(50) // by the predecessor
			lossy.end()
			peer.end()
			client.end()
		})
}

func TestPredecessorThatFailsLeavesNothingWithTheSuccessor(t *testing.T) {
	nodetest.CheckLeaks(t)
	m, addr := handoverServer(t, uring.Auto, 2)
	for step := range 5 {
		a, b := unixPair(t)
		fake := make(chan error, 1)
		go func() { fake <- control.BreakPredecession(m, a, step) }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		next, err := control.TakeOver(ctx, serverConfig(uring.Auto, 2), b, echoAll())
		cancel()
		if next != nil || !errors.Is(err, control.ErrHandOver) {
			t.Errorf("step %d: %v, %v", step, next, err)
		}
		if err := <-fake; err != nil {
			t.Errorf("step %d: %v", step, err)
		}
	}
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), addr)
	s.progress(50)
	s.end()
}

func TestMessengerThatIsHandedOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, addr := handoverServer(t, uring.Auto, 1)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), addr)
	s.progress(5)
	c := m.Conns()[0]
	posted := make(chan error, 1)
	must(t, c.PostBuffer(&control.Posting{TID: 1 << 40, Buffer: make([]byte, 10), Done: func(_ *control.Posting, err error) { posted <- err }}))
	resets := make(chan struct{}, 1)
	next := succeed(t, ctx, m, serverConfig(uring.Auto, 1), &control.Dispatcher{Reset: func(*control.Conn, bool) { resets <- struct{}{} }}, echoAll())
	defer end(t, next)
	select {
	case <-c.Closed():
	case <-ctx.Done():
		t.Fatal("the connection is not over")
	}
	msg := control.NewMessage(1, nil, nil)
	if err := c.Send(msg); !errors.Is(err, control.ErrHandedOver) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if err := c.SendContext(ctx, msg); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("SendContext: %v", err)
	}
	if err := c.Err(); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Err: %v", err)
	}
	if err := <-posted; !errors.Is(err, control.ErrHandedOver) || !errors.Is(err, control.ErrSessionLost) {
		t.Errorf("a posting: %v", err)
	}
	if err := c.PostBuffer(&control.Posting{TID: 1, Buffer: make([]byte, 10)}); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("PostBuffer: %v", err)
	}
	p := control.LosslessPeer()
	if _, err := m.Connect(s.m.Addrs()[0], wire.OSD, control.WithPolicy(p)); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Connect: %v", err)
	}
	a, _ := unixPair(t)
	if err := m.HandOver(ctx, a); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("second hand-over: %v", err)
	}
	if got := next.Lookup(s.m.Addrs()[0]); got == nil || got.State() == control.StateClosing {
		t.Errorf("the successor does not know %v", s.m.Addrs())
	}
	s.progress(20)
	s.end()
	if len(resets) != 0 {
		t.Error("a session was reset")
	}
}

func TestSteeringIsHandedOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	needSteering(t)
	m, addr := handoverServer(t, uring.Auto, 2)
	st, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if !st.Steering.Active {
		t.Fatalf("not steered: %+v", st.Steering)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, cores := range []int{2, 3, 1, 2} {
		next := succeed(t, ctx, m, serverConfig(uring.Auto, cores), echoAll())
		defer end(t, next)
		st, err := next.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if st.Steering.Active != (cores > 1) {
			t.Errorf("%d cores: %+v", cores, st.Steering)
		}
		if cores > 1 {
			if err := next.PinPeer(netip.MustParseAddr("127.0.0.1"), cores-1); err != nil {
				t.Error(err)
			}
		}
		s := newStream(t, uring.Auto, wire.Client, control.LossyClient(), addr)
		s.progress(5)
		s.end()
		if c := next.Conns(); len(c) != 1 || c[0].Core().ID() != cores-1 {
			t.Errorf("%d cores: %d connections, the first on core %d", cores, len(c), c[0].Core().ID())
		}
		m = next
	}
}
