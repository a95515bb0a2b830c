package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
	"github.com/ringmsgr/ringmsgr/uring"
)

// stream sends numbered messages on one connection to a server that echoes, some of them in
// flight, and checks that each comes back once, in order.
type stream struct {
	t    *testing.T
	m    *control.Messenger
	c    *control.Conn
	room chan struct{} // one for each message that may be sent
	sent uint64        // owner: who sends
	came atomic.Uint64
	size func(n uint64) int // of the nth message
	weak bool               // it may end
	over chan struct{}
	once sync.Once // over is closed
	done sync.WaitGroup
}

// streamWindow is the number of messages of a stream that are in flight.
const streamWindow = 16

var errOver = errors.New("the stream is over")

// streamClient is a messenger whose connections are streams. Its dispatchers may not take messages.
func streamClient(t *testing.T, cfg control.Config, chain ...*control.Dispatcher) *control.Messenger {
	t.Helper()
	cfg.Timeouts.InitialBackoff, cfg.Timeouts.MaxBackoff, cfg.Timeouts.Handshake = time.Millisecond, 50*time.Millisecond, anyHandshake
	return startMessenger(t, cfg, append(chain, &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		c.UserData().(*stream).echoed(m)
		return true
	}})...)
}

// clientOf configures a streamClient with one core.
func clientOf(backend uring.Backend, name wire.EntityName, policy control.Policy) control.Config {
	return control.Config{Name: name, Default: &policy, Plane: loop.Config{Cores: 1, StallAfter: -1, Driver: uring.Config{Backend: backend}}}
}

// openStream asks for a connection. Nothing is sent yet.
func openStream(t *testing.T, m *control.Messenger, to wire.Addr, opts ...control.ConnectOption) (*stream, error) {
	s := &stream{t: t, m: m, size: usualSize, room: make(chan struct{}, streamWindow), over: make(chan struct{})}
	for range streamWindow {
		s.room <- struct{}{}
	}
	var err error
	if s.c, err = m.Connect(to, wire.OSD, opts...); err != nil {
		return nil, err
	}
	s.c.SetUserData(s)
	return s, nil
}

// oneStream is a stream of a messenger of its own, which sends nothing by itself.
func oneStream(t *testing.T, cfg control.Config, to wire.Addr) *stream {
	t.Helper()
	m := streamClient(t, cfg)
	if cfg.Default.Standby {
		bind(t, m, wire.Addr{Type: to.Type, AddrPort: loopback(0)})
	}
	s, err := openStream(t, m, to)
	must(t, err)
	return s
}

// newStream is a stream that sends until end, or until the test ends.
func newStream(t *testing.T, backend uring.Backend, typ wire.EntityType, policy control.Policy, to wire.Addr) *stream {
	t.Helper()
	s := oneStream(t, clientOf(backend, wire.EntityName{Type: typ, ID: "7"}, policy), to)
	must(t, s.c.WaitReady(deadline(t)))
	s.run()
	t.Cleanup(s.end)
	return s
}

func (s *stream) echoed(m *control.Message) {
	if want := s.came.Load(); m.TID != want || string(m.Front) != fmt.Sprint(want) {
		s.t.Errorf("conn %d: echo %d %q, want %d", s.c.ID(), m.TID, m.Front, want)
	}
	s.came.Add(1)
	s.room <- struct{}{}
}

// usualSize is small, but now and then beyond what is parsed in place.
func usualSize(n uint64) int {
	if n%64 == 7 {
		return 100 << 10
	}
	return 100
}

// push sends one message, once the window has room.
func (s *stream) push() error {
	select {
	case <-s.room:
	case <-s.over:
		return errOver
	case <-s.c.Closed():
		return s.c.Err()
	}
	m := numbered(s.sent, control.NewMessage(9, fmt.Append(nil, s.sent), make([]byte, s.size(s.sent))))
	s.sent++
	return s.c.Send(m)
}

// settle waits until everything has come back.
func (s *stream) settle(ctx context.Context) error {
	for range streamWindow {
		select {
		case <-s.room:
		case <-s.c.Closed():
			return s.c.Err()
		case <-ctx.Done():
			st, _ := s.c.Stats()
			return fmt.Errorf("%v, conn %d: %d of %d echoes came, state %v, %v: %w\n%+v", s.m.Name(), s.c.ID(), s.came.Load(), s.sent, s.c.State(), s.c.Err(), context.Cause(ctx), st)
		}
	}
	for range streamWindow {
		s.room <- struct{}{}
	}
	return nil
}

// exchange sends n messages, and waits for their echoes.
func (s *stream) exchange(n int) {
	s.t.Helper()
	for range n {
		must(s.t, s.push())
	}
	must(s.t, s.settle(deadline(s.t)))
}

// run sends without pause until end.
func (s *stream) run() {
	s.done.Go(func() {
		for {
			if err := s.push(); err != nil {
				if err != errOver && !s.weak {
					s.t.Errorf("send %d: %v", s.sent, err)
				}
				return
			}
		}
	})
}

// progress waits for n more echoes.
func (s *stream) progress(n uint64) {
	s.t.Helper()
	from := s.came.Load()
	eventually(s.t, deadline(s.t), fmt.Sprintf("progress of %v from echo %d on", s.m.Name(), from), func() bool {
		return s.came.Load() >= from+n || s.weak && s.c.State() == control.StateClosing || s.t.Failed()
	})
}

// end stops sending and waits for all echoes.
func (s *stream) end() {
	s.once.Do(func() {
		close(s.over)
		s.done.Wait()
		if err := s.settle(deadline(s.t)); err != nil && !s.weak {
			s.t.Error(err)
		}
	})
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

// injects configures a node.
func injects(i probe.Inject) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) { c.Diagnostics.Inject = i }
}

// Over sockets one operation in thirty of which fails, with handshakes and dispatches that take
// their time, and throttles that a few messages fill, every message comes once and in order, and
// its echo, too. Nothing is held in the end.
// Matrix: FT-32, V1-10
func TestInjectedFailuresLoseNoMessage(t *testing.T) {
	seed := seedOfSample(t)
	t.Logf("RINGMSGR_SAMPLE=%d", seed)
	overVariants(t, slices.Concat(newest, msgr1Variants), func(t *testing.T, ctx context.Context, v variant) {
		inject := func(n uint64) probe.Inject {
			return probe.Inject{
				Seed: seed*1000 + n + 1, SocketFailures: 30, Handshakes: probe.Delay{Probability: 0.05, Max: 5 * time.Millisecond},
				Messages: probe.Delay{Probability: 0.1, Max: 5 * time.Millisecond},
			}
		}
		server := nodeOf(t, v, "osd.1", "LP", 1, withChain(echoAll()), injects(inject(0)), tightly)
		var streams []*stream
		for i := range inLongForm(50, 2) {
			cfg := clientOf(v.backend, osd(fmt.Sprint(2+i)), control.LosslessPeer())
			v.configure(&cfg)
			cfg.Diagnostics.Inject = inject(uint64(1 + i))
			streams = append(streams, oneStream(t, cfg, server.Addr))
		}
		var faults uint64
		for _, s := range streams {
			s.run()
		}
		for _, s := range streams {
			s.progress(100)
			s.end()
			faults += connStats(t, s.c).Counters.Faults
		}
		if faults == 0 {
			t.Error("no socket has failed")
		}
		holdsNothing(t, ctx, server)
	})
}

// tightly has all connections of a node share throttles that a few messages fill.
func tightly(c *nodetest.NodeConfig) {
	c.Default.Messages, c.Default.Bytes, c.Receiving.Bytes = loop.NewThrottle(8), loop.NewThrottle(20_000), 30_000
}

// holdsNothing waits until the throttles and queues of a node are empty.
func holdsNothing(t *testing.T, ctx context.Context, n *nodetest.Node) {
	t.Helper()
	eventually(t, ctx, "empty throttles of "+n.Name().String(), func() bool {
		for _, c := range n.Conns() {
			st, err := c.Stats()
			if err != nil || st.HeldBytes != 0 || st.IO.Sent != 0 {
				return false
			}
			for _, th := range st.Throttles {
				if th.Used != 0 {
					return false
				}
			}
		}
		return true
	})
}

func TestDelaysComeBySeedAndMessagesKeepTheirOrder(t *testing.T) {
	const n = 20
	half := probe.Delay{Probability: 0.5, Max: time.Millisecond}
	for what, inject := range map[string]probe.Inject{"handshakes": {Handshakes: half}, "messages": {Messages: half}} {
		t.Run(what, func(t *testing.T) {
			everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
				delays := func(seed uint64) []time.Duration {
					clock, inject := &testClock{hasty: half.Max}, inject
					inject.Seed = seed
					server := nodeOf(t, v, "osd.1", "LP", 1, injects(inject), clock.of)
					conn := nodeOf(t, v, "osd.2", "LP", 2).Dial(server)
					var want []uint64
					for tid := range uint64(n) {
						send(t, conn, tid)
						want = append(want, tid)
						receives(t, ctx, server, want...)
					}
					return clock.pressed()
				}
				one, again, other := delays(1), delays(1), delays(3)
				if len(one) == 0 || len(one) == n || !slices.Equal(one, again) || slices.Equal(one, other) {
					t.Errorf("%v, then %v, with another seed %v", one, again, other)
				}
			})
		})
	}
}

func TestADelayedMessageWaitsForThePauseOfTheUser(t *testing.T) {
	everyProtocol(t, func(t *testing.T, ctx context.Context, v variant) {
		clock := &testClock{hasty: time.Millisecond}
		server := nodeOf(t, v, "osd.1", "LP", 1, injects(probe.Inject{Seed: 1, Messages: probe.Delay{Probability: 1, Max: clock.hasty}}), clock.of)
		conn := nodeOf(t, v, "osd.2", "LP", 2).Dial(server)
		send(t, conn, 1)
		receives(t, ctx, server, 1)
		theirs := first(t, ctx, server)
		theirs.Pause()
		send(t, conn, 2)
		send(t, conn, 3)
		eventually(t, ctx, "the pause", func() bool { return connStats(t, theirs).IO.Paused })
		control.Unhold(theirs) // a delay ends now
		if st, err := theirs.Stats(); err != nil || !st.IO.Paused {
			t.Errorf("a delay has ended the pause: %v", err)
		}
		theirs.Resume()
		receives(t, ctx, server, 1, 2, 3)
	})
}
