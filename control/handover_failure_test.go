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
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// handoverServer is a bound echo.
func handoverServer(t *testing.T, backend uring.Backend, cores int) (*control.Messenger, wire.Addr) {
	t.Helper()
	return serveEcho(t, serverConfig(backend, cores))
}

func serveEcho(t *testing.T, cfg control.Config) (*control.Messenger, wire.Addr) {
	t.Helper()
	m := startMessenger(t, cfg, echoAll())
	addrs := bind(t, m, wire.Addr{Type: wire.AddrMsgr2, AddrPort: msgrtest.ReservePort(t)})
	return m, addrs[0]
}

func TestSuccessorThatFailsLeavesThePredecessorServing(t *testing.T) {
	nodetest.CheckLeaks(t)
	spread(t, len(engines), len(engines), func(i int) string { return string(engines[i]) },
		func(t *testing.T, i int) {
			backend := engines[i]
			ctx := deadline(t)
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

func TestMessengerThatIsHandedOver(t *testing.T) {
	nodetest.CheckLeaks(t)
	ctx := deadline(t)
	m, addr := handoverServer(t, uring.Auto, 1)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), addr)
	s.progress(5)
	c := m.Conns()[0]
	posted := make(chan error, 1)
	must(t, c.PostBuffer(&control.Posting{TID: 1 << 40, Buffer: make([]byte, 10), Done: func(_ *control.Posting, err error) { posted <- err }}))
	resets := make(chan struct{}, 1)
	next := succeed(t, ctx, m, serverConfig(uring.Auto, 1), &control.Dispatcher{Reset: func(*control.Conn, bool) { resets <- struct{}{} }}, echoAll())
	defer end(t, next)
	arrives(t, "the end of the connection", c.Closed())
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
	if _, err := m.Rebind(ctx); !errors.Is(err, control.ErrHandedOver) {
		t.Errorf("Rebind: %v", err)
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
	st := statsOf(t, m)
	if !st.Steering.Active {
		t.Fatalf("not steered: %+v", st.Steering)
	}
	ctx := deadline(t)
	for _, cores := range []int{2, 3, 1, 2} {
		next := succeed(t, ctx, m, serverConfig(uring.Auto, cores), echoAll())
		defer end(t, next)
		st := statsOf(t, next)
		if st.Steering.Active != (cores > 1) {
			t.Errorf("%d cores: %+v", cores, st.Steering)
		}
		if cores > 1 {
			check(t, next.PinPeer(netip.MustParseAddrPort("127.0.0.1:0"), cores-1))
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

// A session that stood still for a hand-over that failed says in its SESSION_RECONNECT how much it
// had received. A lower number would have the peer count anew, so that its next messages would
// be taken for duplicates. Nothing is left of the successor.
func TestAfterAFailedHandOverTheSessionResumesBehindWhatItReceived(t *testing.T) {
	everyVariant(t, func(t *testing.T, ctx context.Context, v variant) {
		inside, goOn := make(chan struct{}), make(chan struct{})
		s := stageFor(t, ctx, v, "LLC", withChain(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
			if m.TID == 103 {
				close(inside)
				<-goOn
			}
			return false
		}}))
		p, _ := s.serve()
		p.Ignore(frame.TagAck)
		for seq := uint64(1); seq <= 3; seq++ {
			p.SendMessage(frame.MessageHeader{Seq: seq, TID: 100 + seq}, nil, nil, nil)
		}
		<-inside
		// The core does not answer in time.
		a, b := unixPair(t)
		patience, end := context.WithCancel(ctx)
		defer end()
		taken := async(func() error {
			return onlyError(control.TakeOver(ctx, control.Config{Name: s.node.Name(), Plane: loop.Config{Cores: 2}}, b))
		})
		given := async(func() error {
			defer a.Close() // as the end of a process does
			return s.node.HandOver(patience, a)
		})
		eventually(t, ctx, "a session that stands still", func() bool { return s.conn.State() == control.StateStandby })
		end()
		for _, ended := range []<-chan error{given, taken} {
			if err := <-ended; !errors.Is(err, control.ErrHandOver) {
				t.Errorf("hand-over: %v", err)
			}
		}
		close(goOn)
		p.ExpectEnd()
		s.must(p)
		again := s.accept()
		if sr := again.ExpectReconnect(); sr.MsgSeq != 3 {
			t.Errorf("SESSION_RECONNECT says %d, received were 3: %v", sr.MsgSeq, again.Err())
		}
		again.SendPayload(frame.TagSessionReconnectOK, wire2.SessionReconnectOK{})
		again.SendMessage(frame.MessageHeader{Seq: 4, TID: 104}, nil, nil, nil)
		awaitTID(t, ctx, s.node, 104)
	})
}
