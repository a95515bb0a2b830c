package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
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
	weak bool // it may end
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
	s := &stream{t: t, m: m, room: make(chan struct{}, streamWindow), over: make(chan struct{})}
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

// push sends one message, once the window has room.
func (s *stream) push() error {
	select {
	case <-s.room:
	case <-s.over:
		return errOver
	case <-s.c.Closed():
		return s.c.Err()
	}
	size := 100
	if s.sent%64 == 7 {
		size = 100 << 10 // beyond what is parsed in place
	}
	m := numbered(s.sent, control.NewMessage(9, fmt.Append(nil, s.sent), make([]byte, size)))
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
