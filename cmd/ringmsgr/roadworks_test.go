package main

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

// roadworks is a TCP proxy that cuts, resets, half-closes and stalls the
// connections through it, at random offsets in their bytes.
type roadworks struct {
	listener net.Listener
	from     netip.Addr                     // its address, as the server sees it
	to       atomic.Pointer[netip.AddrPort] // where it leads; nil: nowhere yet
	calm     atomic.Bool                    // no more trouble
	carried  atomic.Int64                   // connections
	refused  chan struct{}                  // a connection came that leads nowhere yet
	made     [len(troubleNames)]atomic.Int64
	work     sync.WaitGroup

	mu    sync.Mutex
	rng   *rand.Rand
	conns map[net.Conn]struct{}
	over  bool
}

// What happens to a connection.
const (
	troubleCut   = iota // both sides see its end
	troubleReset        // both sides see an error
	troubleHalf         // one side sees the end of one direction, and can still send
	troubleStall        // one direction carries nothing more, and nobody is told
	troublePause        // one direction stands still, and goes on
)

var troubleNames = [...]string{"cuts", "resets", "half-closes", "stalls", "pauses"}

// troubles counts them.
type troubles [len(troubleNames)]int64

func (t troubles) sum() (n int64) {
	for _, k := range t {
		n += k
	}
	return n
}

func (t troubles) String() (s string) {
	for i, n := range t {
		s += fmt.Sprintf("%d %s ", n, troubleNames[i])
	}
	return s[:len(s)-1]
}

// newRoadworks opens a proxy that connects from an address of this machine. It
// ends with the test.
func newRoadworks(t *testing.T, seed uint64, from netip.Addr) *roadworks {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &roadworks{listener: l, from: from, rng: rand.New(rand.NewPCG(seed, 7)), conns: make(map[net.Conn]struct{}), refused: make(chan struct{}, 1)}
	r.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.work.Go(func() { r.carry(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(r.close)
	return r
}

func (r *roadworks) addr() netip.AddrPort { return r.listener.Addr().(*net.TCPAddr).AddrPort() }

func (r *roadworks) lead(to netip.AddrPort) { r.to.Store(&to) }

func (r *roadworks) counts() (t troubles) {
	for i := range r.made {
		t[i] = r.made[i].Load()
	}
	return t
}

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

func (r *roadworks) track(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return !r.over
}

// carry takes a connection to its end.
func (r *roadworks) carry(client *net.TCPConn) {
	defer client.Close()
	to := r.to.Load()
	if to == nil {
		select {
		case r.refused <- struct{}{}:
		default:
		}
		return
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.from, 0))}
	s, err := d.Dial("tcp4", to.String())
	if err != nil {
		return
	}
	server := s.(*net.TCPConn)
	defer server.Close()
	if r.track(client, server) {
		r.carried.Add(1)
		var both sync.WaitGroup
		both.Go(func() { r.pass(server, client) })
		both.Go(func() { r.pass(client, server) })
		both.Wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
	delete(r.conns, server)
}

// distance is how many bytes pass until the next trouble: some are within the
// handshake, others far behind it.
func (r *roadworks) distance() int {
	if r.intn(4) == 0 {
		return r.intn(600)
	}
	return r.intn(1 << 20)
}

// pass copies bytes up to the trouble that this direction has.
func (r *roadworks) pass(dst, src *net.TCPConn) {
	left := r.distance()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		at := 0
		if n > left && !r.calm.Load() {
			at = left
			if _, err := dst.Write(buf[:at]); err != nil {
				return
			}
			if !r.trouble(dst, src) {
				return
			}
			left = n - at + r.distance()
		}
		left = max(left-(n-at), 0)
		if n > at {
			if _, err := dst.Write(buf[at:n]); err != nil {
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
func (r *roadworks) trouble(dst, src *net.TCPConn) bool {
	kind := r.intn(len(troubleNames))
	r.made[kind].Add(1)
	switch kind {
	case troubleCut:
		_, _ = dst.Close(), src.Close()
	case troubleReset:
		_, _ = dst.SetLinger(0), src.SetLinger(0)
		_, _ = dst.Close(), src.Close()
	case troubleHalf:
		_ = dst.CloseWrite()
	case troubleStall:
		// For longer than keepalives wait; but a handshake that stands still
		// waits longer than the test wants to.
		_ = src.SetReadDeadline(time.Now().Add(time.Duration(700+r.intn(800)) * time.Millisecond))
		_, _ = io.Copy(io.Discard, src)
		_, _ = dst.Close(), src.Close()
	case troublePause:
		timer := time.NewTimer(time.Duration(r.intn(300)) * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return true
	}
	return false
}
