package soak

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// hostileProxy is a TCP proxy that cuts, resets, half-closes, stalls and pauses the connections
// through it, at random offsets in their bytes. The same seed makes the same choices, not
// always at the same offsets, as TCP cuts the streams. Any goroutine may call its methods.
type hostileProxy struct {
	to    netip.AddrPort
	reach int           // the most bytes that a direction carries between two troubles; a quarter of them come within 600 bytes, where handshakes are
	stall time.Duration // the longest that a stalled connection stands before it is cut

	listener net.Listener
	calm     atomic.Bool
	made     [troubleKinds]atomic.Int64
	work     sync.WaitGroup

	mu    sync.Mutex
	rng   *rand.Rand            // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
	over  bool                  // guarded by mu
}

const (
	troubleCut   = iota // both ends see the end of the stream
	troubleReset        // both ends see an error
	troubleHalf         // one end sees the end of one direction, and can still send
	troubleStall        // one direction carries no more bytes, without an event
	troublePause        // one direction stands still for up to 0.3 s, and goes on
	troubleKinds
)

// newHostileProxy listens on 127.0.0.1 until the test has ended.
func newHostileProxy(t testing.TB, to netip.AddrPort, seed uint64, reach int, stall time.Duration) *hostileProxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	clitest.Must(t, err)
	p := &hostileProxy{
		to: to, reach: reach, stall: stall, listener: l,
		rng: rand.New(rand.NewPCG(seed, 7)), conns: make(map[net.Conn]struct{}),
	}
	p.work.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			p.work.Go(func() { p.carry(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(p.close)
	return p
}

// addr is the address of the proxy.
func (p *hostileProxy) addr() netip.AddrPort { return p.listener.Addr().(*net.TCPAddr).AddrPort() }

// cutAll resets all connections that are there now.
func (p *hostileProxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0) // or it is closed already
		_ = c.Close()
	}
}

// troubles are the counts so far, by kind.
func (p *hostileProxy) troubles() (n [troubleKinds]int64) {
	for kind := range n {
		n[kind] = p.made[kind].Load()
	}
	return n
}

func (p *hostileProxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.over = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// intn is a random number below n.
func (p *hostileProxy) intn(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.IntN(n)
}

func (p *hostileProxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return !p.over
}

func (p *hostileProxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// carry takes a connection to its end.
func (p *hostileProxy) carry(client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	s, err := net.Dial("tcp4", p.to.String())
	if err != nil {
		return
	}
	server := s.(*net.TCPConn)
	defer func() { _ = server.Close() }()
	defer p.forget(client, server)
	if p.track(client, server) {
		var both sync.WaitGroup
		both.Go(func() { p.pass(server, client) })
		both.Go(func() { p.pass(client, server) })
		both.Wait()
	}
}

// distance is the number of bytes until the next trouble.
func (p *hostileProxy) distance() int {
	if p.intn(4) == 0 {
		return p.intn(600)
	}
	return p.intn(p.reach)
}

// pass copies bytes, and has one trouble after the other with them.
func (p *hostileProxy) pass(dst, src *net.TCPConn) {
	left := p.distance()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		rest := buf[:n]
		if n > left && !p.calm.Load() {
			if _, err := dst.Write(rest[:left]); err != nil {
				return
			}
			if !p.trouble(dst, src) {
				return
			}
			rest = rest[left:]
			left = len(rest) + p.distance()
		}
		left = max(left-len(rest), 0)
		if len(rest) > 0 {
			if _, err := dst.Write(rest); err != nil {
				return
			}
		}
		if err != nil {
			_ = dst.CloseWrite() // the end is passed on; an error is the end as well
			return
		}
	}
}

// trouble does one thing to a connection, and says whether it goes on.
func (p *hostileProxy) trouble(dst, src *net.TCPConn) bool {
	kind := p.intn(troubleKinds)
	p.made[kind].Add(1)
	switch kind {
	case troubleCut:
		_, _ = dst.Close(), src.Close()
	case troubleReset:
		_, _ = dst.SetLinger(0), src.SetLinger(0)
		_, _ = dst.Close(), src.Close()
	case troubleHalf:
		_ = dst.CloseWrite()
	case troubleStall:
		_ = src.SetReadDeadline(time.Now().Add(p.stall/2 + time.Duration(p.intn(int(p.stall/2)+1))))
		_, _ = io.Copy(io.Discard, src)
		_, _ = dst.Close(), src.Close()
	case troublePause:
		timer := time.NewTimer(time.Duration(p.intn(300)) * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return true
	}
	return false
}

// echoes is a TCP server that sends back what it gets.
func echoes(t *testing.T) netip.AddrPort {
	return netip.MustParseAddrPort(clitest.Listen(t, "tcp4", "127.0.0.1:0", func(c net.Conn) {
		_, _ = io.Copy(struct{ io.Writer }{c}, c) // not by splice, which keeps its pipes for the next one
	}))
}

// exchange sends data through the proxy and returns what came back.
func exchange(t *testing.T, p *hostileProxy, data []byte) []byte {
	c, err := net.Dial("tcp4", p.addr().String())
	clitest.Must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	back, _ := io.ReadAll(c) // how it ends is the proxy's affair
	return back
}

// Matrix: OB-06
func TestAHostileProxyDoesEverythingAndInventsNothing(t *testing.T) {
	drivertest.LeavesNothing(t)
	p := newHostileProxy(t, echoes(t), 3, 4096, time.Millisecond)
	data := make([]byte, 64<<10)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	all := func() bool { n := p.troubles(); return slices.Min(n[:]) > 0 }
	for range 200 {
		if back := exchange(t, p, data); !bytes.HasPrefix(data, back) {
			t.Fatalf("%d bytes came back that nobody sent", len(back))
		}
		if all() {
			break
		}
	}
	if !all() {
		t.Errorf("troubles by kind: %d", p.troubles())
	}
	p.calm.Store(true)
	// A connection of before may be in the middle of its last one, each of them once.
	quiet := false
	for range 20 {
		before := p.troubles()
		if back := exchange(t, p, data); !bytes.Equal(back, data) {
			t.Errorf("calm: %d of %d bytes came back", len(back), len(data))
		}
		if quiet = p.troubles() == before; quiet {
			break
		}
	}
	if !quiet {
		t.Errorf("calm, and there are more and more: %v", p.troubles())
	}
}
