package msgrtest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// HostileProxy is a TCP proxy that cuts, resets, half-closes, stalls and pauses the connections
// through it, at random offsets in their bytes. The same seed makes the same choices, not
// always at the same offsets, as TCP cuts the streams. Any goroutine may call its methods.
type HostileProxy struct {
	cfg      HostileConfig
	listener net.Listener
	to       atomic.Pointer[netip.AddrPort] // nil: nowhere yet
	calm     atomic.Bool
	carried  atomic.Int64
	refused  chan struct{}
	made     [troubleKinds]atomic.Int64
	work     sync.WaitGroup

	mu    sync.Mutex
	rng   *rand.Rand            // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
	over  bool                  // guarded by mu
}

// HostileConfig says how hostile a HostileProxy is. The zero value will do.
type HostileConfig struct {
	Seed uint64
	// Reach is the most bytes that a direction carries between two troubles; 0:
	// 1 MiB. A quarter of them come within 600 bytes, where handshakes are.
	Reach int
	// Stall is the longest that a stalled connection stands before it is cut;
	// 0: until its ends give it up.
	Stall time.Duration
	// From is the address of this machine that the server sees; zero: the
	// system's choice.
	From netip.Addr
}

const (
	troubleCut = iota
	troubleReset
	troubleHalf
	troubleStall
	troublePause
	troubleKinds
)

// Troubles counts the disturbances of a HostileProxy.
type Troubles struct {
	Cuts       int64 // both ends see the end of the stream
	Resets     int64 // both ends see an error
	HalfCloses int64 // one end sees the end of one direction, and can still send
	Stalls     int64 // one direction carries no more bytes, without an event
	Pauses     int64 // one direction stands still for up to 0.3 s, and goes on
}

// Add returns the sum of both counts.
func (t Troubles) Add(o Troubles) Troubles {
	return Troubles{t.Cuts + o.Cuts, t.Resets + o.Resets, t.HalfCloses + o.HalfCloses, t.Stalls + o.Stalls, t.Pauses + o.Pauses}
}

// String lists the counts.
func (t Troubles) String() string {
	return fmt.Sprintf("%d cuts, %d resets, %d half-closes, %d stalls, %d pauses", t.Cuts, t.Resets, t.HalfCloses, t.Stalls, t.Pauses)
}

// NewHostileProxy listens on 127.0.0.1 until the test has ended. It closes
// connections that come before Lead.
func NewHostileProxy(t testing.TB, cfg HostileConfig) *HostileProxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Reach == 0 {
		cfg.Reach = 1 << 20
	}
	p := &HostileProxy{
		cfg: cfg, listener: l, refused: make(chan struct{}, 1),
		rng: rand.New(rand.NewPCG(cfg.Seed, 7)), conns: make(map[net.Conn]struct{}),
	}
	p.work.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			p.work.Go(func() { p.carry(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(p.close)
	return p
}

// Addr is the address of the proxy.
func (p *HostileProxy) Addr() netip.AddrPort { return p.listener.Addr().(*net.TCPAddr).AddrPort() }

// Lead has new connections go to a server.
func (p *HostileProxy) Lead(to netip.AddrPort) { p.to.Store(&to) }

// Calm ends the troubles: from now on all bytes pass. A connection that stalls
// goes on stalling.
func (p *HostileProxy) Calm() { p.calm.Store(true) }

// CutAll resets all connections that are there now.
func (p *HostileProxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0) // or it is closed already
		_ = c.Close()
	}
}

// Troubles are the counts so far.
func (p *HostileProxy) Troubles() Troubles {
	return Troubles{
		p.made[troubleCut].Load(), p.made[troubleReset].Load(), p.made[troubleHalf].Load(),
		p.made[troubleStall].Load(), p.made[troublePause].Load(),
	}
}

// Carried is the number of connections that it took to a server.
func (p *HostileProxy) Carried() int64 { return p.carried.Load() }

// Refused has an element after a connection that came before Lead.
func (p *HostileProxy) Refused() <-chan struct{} { return p.refused }

func (p *HostileProxy) close() {
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
func (p *HostileProxy) intn(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.IntN(n)
}

func (p *HostileProxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return !p.over
}

func (p *HostileProxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// carry takes a connection to its end.
func (p *HostileProxy) carry(client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	to := p.to.Load()
	if to == nil {
		select {
		case p.refused <- struct{}{}:
		default:
		}
		return
	}
	var d net.Dialer
	if p.cfg.From.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.cfg.From, 0))
	}
	s, err := d.Dial("tcp4", to.String())
	if err != nil {
		return
	}
	server := s.(*net.TCPConn)
	defer func() { _ = server.Close() }()
	defer p.forget(client, server)
	if p.track(client, server) {
		p.carried.Add(1)
		var both sync.WaitGroup
		both.Go(func() { p.pass(server, client) })
		both.Go(func() { p.pass(client, server) })
		both.Wait()
	}
}

// distance is the number of bytes until the next trouble.
func (p *HostileProxy) distance() int {
	if p.intn(4) == 0 {
		return p.intn(600)
	}
	return p.intn(p.cfg.Reach)
}

// pass copies bytes, and has one trouble after the other with them.
func (p *HostileProxy) pass(dst, src *net.TCPConn) {
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
func (p *HostileProxy) trouble(dst, src *net.TCPConn) bool {
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
		if p.cfg.Stall > 0 {
			_ = src.SetReadDeadline(time.Now().Add(p.cfg.Stall/2 + time.Duration(p.intn(int(p.cfg.Stall/2)+1))))
		}
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
