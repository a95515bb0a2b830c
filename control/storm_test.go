package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

const stormBackoff = control.DefaultMaxBackoff

// stormSide is the number of messengers on each side; every pair has a
// session. The full size, 1024 sessions, takes a machine of its own.
func stormSide() int {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return 32
	}
	return 10
}

// cutter is a driver that can end all its connections at once. It is used on
// its core.
type cutter struct {
	uring.Driver
	open map[uring.Socket]struct{}
}

func (c *cutter) Connect(local, to netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	s, op, err := c.Driver.Connect(local, to, opt, user)
	if err == nil {
		c.open[s] = struct{}{}
	}
	return s, op, err
}

func (c *cutter) Adopt(fd int) (uring.Socket, error) {
	s, err := c.Driver.Adopt(fd)
	if err == nil {
		c.open[s] = struct{}{} // the other side was faster to dial
	}
	return s, err
}

func (c *cutter) Close(s uring.Socket) {
	delete(c.open, s)
	c.Driver.Close(s)
}

// reunion is the two sides of the test.
type reunion struct {
	dialling, accepting []*control.Messenger
	cutters             []*cutter // of the dialling side, all connections of which they end
	conns               []*control.Conn
	arrived             atomic.Int64
	news                chan struct{}
	resets              atomic.Int64
}

func newReunion(t *testing.T, backend uring.Backend) *reunion {
	s := &reunion{news: make(chan struct{}, 1)}
	for i := range 2 * stormSide() {
		policy := control.LosslessPeer()
		cfg := control.Config{
			Name: wire.EntityName{Type: wire.OSD, ID: fmt.Sprint(i)}, Number: int64(i), Default: &policy,
			MaxBackoff: stormBackoff,
			Plane:      dataplane.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
		}
		if i < stormSide() {
			cfg.Plane.Open = func(int) (uring.Driver, error) {
				d, err := uring.Open(uring.Config{Backend: backend})
				c := &cutter{Driver: d, open: make(map[uring.Socket]struct{})}
				s.cutters = append(s.cutters, c)
				return c, err
			}
		}
		m, err := control.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Start(s.dispatcher()); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}); err != nil {
			t.Fatal(err)
		}
		if i < stormSide() {
			s.dialling = append(s.dialling, m)
		} else {
			s.accepting = append(s.accepting, m)
		}
	}
	for _, m := range s.dialling {
		for _, to := range s.accepting {
			c, err := m.Connect(to.Addrs()[0], wire.OSD)
			if err != nil {
				t.Fatal(err)
			}
			s.conns = append(s.conns, c)
		}
	}
	return s
}

func (s *reunion) dispatcher() *control.Dispatcher {
	return &control.Dispatcher{
		Fast: func(*control.Conn, *control.Message) bool {
			s.arrived.Add(1)
			select {
			case s.news <- struct{}{}:
			default:
			}
			return true
		},
		Reset:       func(*control.Conn, bool) { s.resets.Add(1) },
		RemoteReset: func(*control.Conn) { s.resets.Add(1) },
	}
}

// everybody sends a message over each session and waits until all are there.
func (s *reunion) everybody(t *testing.T, within time.Duration) {
	t.Helper()
	want := s.arrived.Load() + int64(len(s.conns))
	for _, c := range s.conns {
		if err := c.Send(control.NewMessage(1, []byte("are you back?"), nil)); err != nil {
			t.Fatal(err)
		}
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for s.arrived.Load() < want {
		select {
		case <-s.news:
		case <-timeout.C:
			t.Fatalf("%d of %d sessions are not back within %v", want-s.arrived.Load(), len(s.conns), within)
		}
	}
}

// cut ends all connections.
func (s *reunion) cut(t *testing.T) (n int) {
	t.Helper()
	cut := make(chan int, len(s.dialling))
	for i, m := range s.dialling {
		err := m.RawPlane().Core(0).Do(func(*dataplane.Core) {
			c := s.cutters[i]
			cut <- len(c.open)
			for sock := range c.open {
				c.Shutdown(sock)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range s.dialling {
		n += <-cut
	}
	return n
}

// usage is what a storm must not leave behind.
type usage struct {
	heap       uint64
	pool       int64
	sockets    int64
	halfOpen   int // handshakes of accepted sockets
	goroutines int
}

func (s *reunion) usage(t *testing.T) usage {
	t.Helper()
	var u usage
	for _, m := range append(s.dialling, s.accepting...) {
		st, err := m.Stats()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range st.Cores {
			u.pool += c.PoolInUse
			u.sockets += c.Sockets
		}
		u.halfOpen += st.HalfOpen
	}
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	u.heap = ms.HeapInuse
	u.goroutines = runtime.NumGoroutine()
	return u
}

// settle waits until usage is as wanted.
func (s *reunion) settle(t *testing.T, what string, wanted func(u usage) bool) usage {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(2 * stormBackoff)
	defer timeout.Stop()
	for {
		u := s.usage(t)
		if wanted(u) {
			return u
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("%s: %+v", what, u)
		}
	}
}

// connected: no session has more than its two sockets, and no handshake is
// under way. Both ends may dial after a cut; the race ends a little after the
// messages arrived, now and then with both in standby, as nothing is left to
// send.
func (s *reunion) connected(u usage) bool {
	return u.sockets > 0 && u.sockets <= int64(2*len(s.conns)) && u.halfOpen == 0
}

func TestAThousandSessionsComeBackFromACut(t *testing.T) {
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			s := newReunion(t, backend)
			s.everybody(t, 2*stormBackoff)
			s.cut(t) // once before the measurement, so that all that is kept is there
			s.everybody(t, 2*stormBackoff)
			before := s.settle(t, "before the storms", s.connected)
			for round := range 3 {
				if n := s.cut(t); n < len(s.conns)*9/10 {
					t.Errorf("round %d cut %d connections of %d sessions", round, n, len(s.conns))
				}
				start := time.Now()
				s.everybody(t, 2*stormBackoff)
				s.settle(t, "not connected", s.connected)
				t.Logf("round %d: %d sessions are back after %v", round, len(s.conns), time.Since(start))
			}
			after := s.settle(t, fmt.Sprintf("it was %+v", before), func(u usage) bool {
				return s.connected(u) && u.pool <= before.pool && u.goroutines <= before.goroutines && u.heap <= before.heap+before.heap/4+4<<20
			})
			t.Logf("before %+v, after %+v", before, after)
			if n := s.resets.Load(); n != 0 {
				t.Errorf("%d sessions were reset", n)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for _, m := range append(s.dialling, s.accepting...) {
				if err := m.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for runtime.NumGoroutine() > goroutines {
				select {
				case <-tick.C:
				case <-ctx.Done():
					t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
				}
			}
		})
	}
}
