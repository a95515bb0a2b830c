package msgrtest_test

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// echoes is a TCP server that sends back what it gets.
func echoes(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(struct{ io.Writer }{c}, c) // not by splice, which keeps its pipes for the next one
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// exchange sends data through the proxy and returns what came back.
func exchange(t *testing.T, p *msgrtest.HostileProxy, data []byte) []byte {
	c, err := net.Dial("tcp4", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
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
	nodetest.CheckLeaks(t)
	p := msgrtest.NewHostileProxy(t, msgrtest.HostileConfig{Seed: 3, Reach: 4096, Stall: time.Millisecond})
	if back := exchange(t, p, []byte("x")); len(back) != 0 {
		t.Errorf("%q came back from nowhere", back)
	}
	<-p.Refused()
	p.Lead(echoes(t))
	data := make([]byte, 64<<10)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	all := func(n msgrtest.Troubles) bool {
		return n.Cuts > 0 && n.Resets > 0 && n.HalfCloses > 0 && n.Stalls > 0 && n.Pauses > 0
	}
	for range 200 {
		if back := exchange(t, p, data); !bytes.HasPrefix(data, back) {
			t.Fatalf("%d bytes came back that nobody sent", len(back))
		}
		if all(p.Troubles()) {
			break
		}
	}
	if n := p.Troubles(); !all(n) || p.Carried() == 0 {
		t.Errorf("%v in %d connections", n, p.Carried())
	}
	p.Calm()
	// A connection of before may be in the middle of its last one, each of them once.
	quiet := false
	for range 20 {
		before := p.Troubles()
		if back := exchange(t, p, data); !bytes.Equal(back, data) {
			t.Errorf("calm: %d of %d bytes came back", len(back), len(data))
		}
		if quiet = p.Troubles() == before; quiet {
			break
		}
	}
	if !quiet {
		t.Errorf("calm, and there are more and more: %v", p.Troubles())
	}
}
