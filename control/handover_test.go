package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/internal/wire2"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

func serverConfig(backend uring.Backend, cores int) control.Config {
	stateless, peer := control.StatelessServer(), control.LosslessPeer()
	stateful := control.StatefulServer()
	return control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &stateless,
		Policies: map[wire.EntityType]control.Policy{wire.OSD: peer, wire.MDS: stateful},
		Plane:    loop.Config{Cores: cores, Driver: uring.Config{Backend: backend}},
	}
}

// queuedEcho promises a reply on the goroutine of the connection, and gives it on the core, behind all
// that is to be done there.
func queuedEcho(t *testing.T) *control.Dispatcher {
	return &control.Dispatcher{Queued: func(c *control.Conn, m *control.Message) {
		m.Retain()
		due := c.Later(m)
		reply := loop.Task{Run: func(*loop.Core) {
			if err := due.Send(m); err != nil {
				m.Release()
				if errors.Is(err, control.ErrHandedOver) {
					t.Error("a reply came too late for the hand-over")
				}
			}
		}}
		c.Post(&loop.Task{Run: func(core *loop.Core) { core.Post(&reply) }})
	}}
}

// succeed hands m over to a new messenger.
func succeed(t *testing.T, ctx context.Context, m *control.Messenger, cfg control.Config, chain ...*control.Dispatcher) *control.Messenger {
	t.Helper()
	a, b := linktest.UnixPair(t)
	handed := async(func() error { return m.HandOver(ctx, a) })
	next, err := control.TakeOver(ctx, cfg, b, chain...)
	if e := <-handed; err != nil || e != nil {
		t.Fatalf("take over: %v; hand over: %v", err, e)
	}
	return next
}

// Matrix: IN-07, V1-12
func TestHandOverUnderLoadLosesNothing(t *testing.T) {
	drivertest.LeavesNothing(t)
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
			if c.msgr1 { // behind the other protocol, so that each passes with its listeners; a wildcard
				at = append(at, wire.Addr{Type: wire.AddrLegacy, AddrPort: netip.MustParseAddrPort("0.0.0.0:0")})
			}
			addrs := bind(t, m, at...)
			to := addrs[len(addrs)-1]
			to.AddrPort = loopback(to.AddrPort.Port())
			beside := to
			if c.msgr1 { // by another address than that of the first socket
				beside.AddrPort = netip.AddrPortFrom(source(2), to.AddrPort.Port())
			}
			streams := []*stream{
				newStream(t, c.backend, wire.OSD, control.LosslessPeer(), to),
				newStream(t, c.backend, wire.MDS, control.LosslessClient(), beside),
			}
			addrs = m.Addrs()
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
	drivertest.LeavesNothing(t)
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
	peer := startMessenger(t, cfg, &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[m.TID] = true
		return true
	}})
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

// serveEcho is a bound echo.
func serveEcho(t *testing.T, cfg control.Config) *control.Messenger {
	t.Helper()
	m := startMessenger(t, cfg, echoAll())
	bind(t, m, v2(ownHost(), 0))
	return m
}

// doomed is a successor that ends when it has all sessions.
type doomed struct {
	handover.Successor
	hello handover.Hello
}

func (d doomed) Hello() (handover.Hello, error) { return d.hello, nil }
func (doomed) Start(handover.Offer) error       { return nil }
func (doomed) Listeners(fds []int) error        { handover.CloseFiles(fds); return nil }
func (doomed) Steering(fds []int) error         { handover.CloseFiles(fds); return nil }
func (doomed) Undo() error                      { return nil }
func (doomed) Restore(handover.Offer, []handover.Session, handover.Attempts) error {
	return errors.New("doomed")
}

// failToSucceed has a successor of m end when it has read all sessions.
func failToSucceed(t *testing.T, ctx context.Context, m *control.Messenger) {
	t.Helper()
	a, b := linktest.UnixPair(t)
	taken := async(func() error {
		return handover.Take(ctx, b, doomed{hello: handover.Hello{Entity: m.Name(), AnyNonce: true}})
	})
	for _, err := range []error{m.HandOver(ctx, a), <-taken} {
		if err == nil || !strings.Contains(err.Error(), "doomed") {
			t.Errorf("hand-over to a successor that ends: %v", err)
		}
	}
}

// The successor sends the messages that the peer has not acknowledged: for their sender they are neither lost nor not sent.
func TestMessagesThatTheSuccessorSendsHaveThatOutcome(t *testing.T) {
	drivertest.LeavesNothing(t)
	ctx := deadline(t)
	m := serveEcho(t, serverConfig(uring.Auto, 1))
	came := make(chan uint64, 2)
	client := startMessenger(t, clientOf(uring.Auto, wire.EntityName{Type: wire.MDS, ID: "8"}, control.LosslessClient()),
		&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool { came <- m.TID; return true }})
	to, err := client.Connect(m.Addrs()[0], wire.OSD)
	must(t, err)
	must(t, to.WaitReady(ctx))
	to.Pause()
	must(t, onlyError(to.Stats())) // it does not read from here on
	c, outcome, ended := m.Conns()[0], make(chan dataplane.Outcome, 1), make(chan error, 1)
	msg := numbered(5, control.NewMessage(9, nil, nil))
	msg.Free = func(m *control.Message) { outcome <- m.Outcome() }
	must(t, c.Send(msg))
	must(t, c.Start(&control.Request{
		TID: 6, Message: control.NewMessage(9, nil, nil), Done: func(_ *control.Request, _ *control.Message, err error) { ended <- err },
	}))
	next := succeed(t, ctx, m, serverConfig(uring.Auto, 1), echoAll())
	defer end(t, next)
	if o := <-outcome; o != dataplane.OutcomeHandedOver {
		t.Errorf("the message was %v", o)
	}
	wantError(t, "the request", <-ended, control.ErrSessionLost, control.ErrHandedOver)
	to.Resume()
	for want := range uint64(2) {
		if tid := <-came; tid != 5+want {
			t.Errorf("message %d has come, want %d", tid, 5+want)
		}
	}
}

// Behind a hand-over that failed everything goes on. The next successor gets the address of the last
// Rebind, and can be bound anew itself.
func TestMessengerThatIsHandedOver(t *testing.T) {
	drivertest.LeavesNothing(t)
	ctx := deadline(t)
	m := serveEcho(t, serverConfig(uring.Auto, 1))
	addrs, err := m.Rebind(ctx)
	must(t, err)
	s := newStream(t, uring.Auto, wire.OSD, control.LosslessPeer(), addrs[0])
	s.progress(5)
	failToSucceed(t, ctx, m)
	s.progress(50)
	knock(t, netip.AddrPortFrom(source(1), 0), addrs[0].AddrPort)
	c := m.Lookup(s.m.Addrs()[0])
	posted := make(chan error, 1)
	must(t, c.PostBuffer(&control.Posting{TID: 1 << 40, Buffer: make([]byte, 10), Done: func(_ *control.Posting, err error) { posted <- err }}))
	resets := make(chan struct{}, 1)
	next := succeed(t, ctx, m, serverConfig(uring.Auto, 1), &control.Dispatcher{Reset: func(*control.Conn, bool) { resets <- struct{}{} }}, echoAll())
	defer end(t, next)
	arrives(t, "the end of the connection", c.Closed())
	msg := control.NewMessage(1, nil, nil)
	wantError(t, "Send", c.Send(msg), control.ErrHandedOver, net.ErrClosed)
	wantError(t, "SendContext", c.SendContext(ctx, msg), control.ErrHandedOver)
	wantError(t, "Err", c.Err(), control.ErrHandedOver)
	wantError(t, "a posting", <-posted, control.ErrHandedOver, control.ErrSessionLost)
	wantError(t, "PostBuffer", c.PostBuffer(&control.Posting{TID: 1, Buffer: make([]byte, 10)}), control.ErrHandedOver)
	opt := control.WithPolicy(control.LosslessPeer())
	wantError(t, "Connect", onlyError(m.Connect(s.m.Addrs()[0], wire.OSD, opt)), control.ErrHandedOver)
	a, _ := linktest.UnixPair(t)
	wantError(t, "second hand-over", m.HandOver(ctx, a), control.ErrHandedOver)
	wantError(t, "Rebind", onlyError(m.Rebind(ctx)), control.ErrHandedOver)
	if got := next.Addrs(); !got.Equal(addrs) {
		t.Errorf("the successor is at %v, want %v", got, addrs)
	}
	if got := next.Lookup(s.m.Addrs()[0]); got == nil || got.State() == control.StateClosing {
		t.Errorf("the successor does not know %v", s.m.Addrs())
	}
	s.progress(20)
	s.end()
	if len(resets) != 0 {
		t.Error("a session was reset")
	}
	now, err := next.Rebind(ctx)
	must(t, err)
	a1, a2 := addrs[0].AddrPort, now[0].AddrPort
	if a1.Addr() != a2.Addr() || a1.Port() == a2.Port() || addrs[0].Nonce == now[0].Nonce {
		t.Fatalf("from %v to %v", addrs, now)
	}
	if c, err := net.Dial("tcp", a1.String()); err == nil {
		c.Close()
		t.Error("the predecessor has kept its listener")
	}
	s = newStream(t, uring.Auto, wire.MDS, control.LosslessClient(), now[0])
	s.progress(5)
	s.end()
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
		a, b := linktest.UnixPair(t)
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
			wantError(t, "hand-over", <-ended, control.ErrHandOver)
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
