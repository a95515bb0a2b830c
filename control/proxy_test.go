package control_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// detour is a driver whose connections go to another address than the one that
// was dialled, as a network that redirects them would have it.
type detour struct {
	uring.Driver
	via func(to netip.AddrPort) netip.AddrPort
}

func (d detour) Connect(local, to netip.AddrPort, opt uring.SocketOptions, user uint64) (uring.Socket, uring.Op, error) {
	return d.Driver.Connect(local, d.via(to), opt, user)
}

// roadworks is a TCP proxy that cuts, resets, half-closes and stalls the
// connections through it, at random offsets in their bytes.
type roadworks struct {
	listener net.Listener
	to       atomic.Pointer[netip.AddrPort] // where it leads
	calm     atomic.Bool                    // no more trouble
	work     sync.WaitGroup
	troubles [5]atomic.Int64 // by kind

	mu    sync.Mutex
	rng   *rand.Rand
	conns map[net.Conn]struct{}
	over  bool
}

// What happens to a connection.
const (
	troubleCut = iota
	troubleReset
	troubleHalf
	troubleStall
	troublePause
)

func newRoadworks(t *testing.T, seed uint64) *roadworks {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &roadworks{listener: l, rng: rand.New(rand.NewPCG(seed, 5)), conns: make(map[net.Conn]struct{})}
	r.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.work.Go(func() { r.carry(c.(*net.TCPConn)) })
		}
	})
	return r
}

func (r *roadworks) addr() netip.AddrPort { return r.listener.Addr().(*net.TCPAddr).AddrPort() }

// close ends the proxy and its connections.
func (r *roadworks) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.over = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
}

// intn is a random number below n.
func (r *roadworks) intn(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

func (r *roadworks) track(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		_ = c.Close()
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *roadworks) carry(client *net.TCPConn) {
	to := r.to.Load()
	if to == nil {
		_ = client.Close()
		return
	}
	s, err := net.Dial("tcp4", to.String())
	if err != nil {
		_ = client.Close()
		return
	}
	server := s.(*net.TCPConn)
	if r.track(client) && r.track(server) {
		var both sync.WaitGroup
		both.Go(func() { r.pass(server, client) })
		both.Go(func() { r.pass(client, server) })
		both.Wait()
	}
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mu.Unlock()
	_ = client.Close()
	_ = server.Close()
}

// pass copies bytes up to the trouble that this direction has.
func (r *roadworks) pass(dst, src *net.TCPConn) {
	// Most have it somewhere in their traffic, some within the handshake.
	left := r.intn(2 << 20)
	if r.intn(4) == 0 {
		left = r.intn(600)
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && !r.calm.Load() && n > left {
			if left > 0 {
				if _, err := dst.Write(buf[:left]); err != nil {
					return
				}
			}
			if !r.trouble(dst, src) {
				return
			}
			if _, err := dst.Write(buf[left:n]); err != nil {
				return
			}
			left = r.intn(2 << 20)
			continue
		}
		left -= n
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = dst.CloseWrite()
			return
		}
	}
}

// trouble does one thing to a connection, and says whether it goes on.
func (r *roadworks) trouble(dst, src *net.TCPConn) bool {
	kind := r.intn(5)
	r.troubles[kind].Add(1)
	switch kind {
	case troubleCut:
		_, _ = dst.Close(), src.Close()
	case troubleReset:
		_, _ = dst.SetLinger(0), src.SetLinger(0)
		_, _ = dst.Close(), src.Close()
	case troubleHalf:
		_ = dst.CloseWrite()
	case troubleStall:
		// Nothing comes through any more, until the peers lose their patience.
		_, _ = io.Copy(io.Discard, src)
	case troublePause:
		timer := time.NewTimer(time.Duration(r.intn(300)) * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return true
	}
	return false
}

// traveller is one end of the test: it sends numbered messages, and checks
// those of the other end.
type traveller struct {
	m        *control.Messenger
	addr     wire.Addr
	sent     atomic.Uint64
	received atomic.Uint64
	news     chan struct{} // something was received
	wrong    chan error
}

// travelBody is what message n carries.
func travelBody(n uint64) []byte {
	size := int(n*2654435761) % 3000
	if n%50 == 0 {
		size = int(n*40503) % (300 << 10)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(n) + byte(i>>3)
	}
	return b
}

func newTraveller(t *testing.T, id, cores int, backend uring.Backend, via func(netip.AddrPort) netip.AddrPort) *traveller {
	t.Helper()
	policy := control.LosslessPeer()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: fmt.Sprint(id)}, Number: int64(id), Default: &policy,
		Plane: dataplane.Config{Cores: cores, Open: func(int) (uring.Driver, error) {
			d, err := uring.Open(uring.Config{Backend: backend})
			return detour{d, via}, err
		}},
		HandshakeTimeout: 2 * time.Second, InitialBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
		KeepaliveEvery: 200 * time.Millisecond, KeepaliveTimeout: time.Second,
		QueueMessages: 500,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &traveller{m: m, news: make(chan struct{}, 1), wrong: make(chan error, 1)}
	report := func(format string, args ...any) {
		select {
		case p.wrong <- fmt.Errorf(format, args...):
		default:
		}
	}
	err = m.Start(&control.Dispatcher{
		Fast: func(_ *control.Conn, m *control.Message) bool {
			n := binary.LittleEndian.Uint64(m.Front)
			if want := p.received.Load() + 1; n != want {
				report("message %d where %d was due", n, want)
			} else if !bytes.Equal(m.Data, travelBody(n)) {
				report("message %d is not what was sent", n)
			}
			p.received.Store(n)
			select {
			case p.news <- struct{}{}:
			default:
			}
			return true
		},
		Reset:       func(c *control.Conn, _ bool) { report("reset of a lossless session: %v", c.Err()) },
		RemoteReset: func(*control.Conn) { report("remote reset of a lossless session") },
	})
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	p.addr = addrs[0]
	return p
}

// travel sends until ctx ends.
func (p *traveller) travel(ctx context.Context, c *control.Conn) error {
	for {
		n := p.sent.Load() + 1
		m := control.NewMessage(9, binary.LittleEndian.AppendUint64(nil, n), travelBody(n))
		if err := c.SendContext(ctx, m); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		p.sent.Store(n)
	}
}

// arrive waits until the other end has everything.
func (p *traveller) arrive(ctx context.Context, from *traveller) error {
	for p.received.Load() < from.sent.Load() {
		select {
		case <-p.news:
		case err := <-p.wrong:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d messages arrived of %d: %w", p.received.Load(), from.sent.Load(), ctx.Err())
		}
	}
	select {
	case err := <-p.wrong:
		return err
	default:
		return nil
	}
}

// longTest is how long tests run that get better with time: RINGMSGR_LONG, or
// short.
func longTest(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv("RINGMSGR_LONG")
	if s == "" {
		return short
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("RINGMSGR_LONG: %v", err)
	}
	return d
}

func TestLosslessSessionSurvivesAHostileNetwork(t *testing.T) {
	span := longTest(t, 2*time.Second)
	for i, backend := range []uring.Backend{uring.Auto, uring.Epoll} {
		for _, cores := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s,cores=%d", backend, cores), func(t *testing.T) {
				t.Parallel()
				hostile(t, uint64(i*10+cores), cores, backend, span)
			})
		}
	}
}

func hostile(t *testing.T, seed uint64, cores int, backend uring.Backend, span time.Duration) {
	var ends [2]*traveller
	var roads [2]*roadworks // to each end
	for i := range ends {
		roads[i] = newRoadworks(t, seed*2+uint64(i))
		defer roads[i].close()
	}
	for i := range ends {
		ends[i] = newTraveller(t, i, cores, backend, func(netip.AddrPort) netip.AddrPort { return roads[1-i].addr() })
		roads[i].to.Store(&ends[i].addr.AddrPort)
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := ends[i].m.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var senders sync.WaitGroup
	var conns [2]*control.Conn
	for i, p := range ends {
		c, err := p.m.Connect(ends[1-i].addr, wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
		senders.Go(func() {
			if err := p.travel(ctx, c); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	for _, r := range roads {
		r.calm.Store(true)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var total [5]int64
	for i, p := range ends {
		err := p.arrive(ctx, ends[1-i])
		st, e := conns[1-i].Stats()
		if err != nil {
			t.Errorf("end %d (seed %d): %v; the sender: %+v %v", i, seed, err, st, e)
		}
		t.Logf("end %d: sent %d, received %d, %+v", i, p.sent.Load(), p.received.Load(), st.Counters)
		for k := range total {
			total[k] += roads[i].troubles[k].Load()
		}
	}
	t.Logf("cuts, resets, half-closes, stalls, pauses: %v", total)
	if total == [5]int64{} {
		t.Error("nothing disturbed the connections")
	}
}
