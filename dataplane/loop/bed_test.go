package loop

import (
	"cmp"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/dataplane/internal/fakedriver"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/planetest"
	"github.com/ringmsgr/ringmsgr/dataplane/internal/stepped"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// bed is a plane of one core over a fake driver, which the test turns itself.
type bed struct {
	*planetest.Bed
	t testing.TB
	p *Plane
	c *Core
	d *fakedriver.Driver // of the core
}

func newBed(t testing.TB, change func(*Config, *fakedriver.Driver)) *bed {
	t.Helper()
	b := &bed{Bed: planetest.NewBed(t), t: t}
	b.d = b.D
	cfg := Config{Cores: 1, Stepped: func(_ *Core, s stepped.Stepper) { b.By = s }, Open: b.Open, Now: b.Now, Wall: b.Wall}
	if change != nil {
		change(&cfg, b.d)
	}
	p, err := New(cfg)
	must(t, err)
	b.p, b.c = p, p.Core(0)
	t.Cleanup(b.close)
	return b
}

func (b *bed) close() {
	if !b.d.Closed {
		b.p.Close()
	}
}

func (b *bed) settle() {
	b.t.Helper()
	b.Settle()
	if n := len(b.c.readable); n > 0 {
		b.t.Errorf("the line of a core at rest keeps %d sockets", n)
	}
}

func (b *bed) after(d time.Duration) { b.t.Helper(); b.After(d) }

// link makes a connected link over a fake socket.
func (b *bed) link() (*Link, *fakedriver.Sock) {
	f := b.d.Open()
	s := newSocket(b.c)
	l := &Link{core: b.c, sock: s, result: make(chan reply, 1), ahead: BacklogBytes}
	s.sock, s.link = f.Sock, l
	s.arm()
	return l, f
}

// What a kit below this package has for it, with our types.
const patience = planetest.Patience

var (
	loopback = planetest.Loopback
	deadline = planetest.Deadline
	must     = drivertest.Must
	linkPair = planetest.LinkPair[*Link, *Listener]
)

// stats of a core that runs.
func stats(t testing.TB, c *Core) CoreStats {
	t.Helper()
	st, err := c.Stats()
	must(t, err)
	return st
}

// netPair is a link of a core and an ordinary connection at its other end.
func netPair(t testing.TB, core *Core) (*Link, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	l, err := core.Dial(deadline(t), netip.AddrPort{}, netip.MustParseAddrPort(ln.Addr().String()), uring.SocketOptions{})
	must(t, err)
	c, err := ln.Accept()
	must(t, err)
	t.Cleanup(func() { c.Close() })
	if l.LocalAddr().String() != c.RemoteAddr().String() || l.PeerAddr().String() != c.LocalAddr().String() {
		t.Errorf("link %v-%v, connection %v-%v", l.LocalAddr(), l.PeerAddr(), c.RemoteAddr(), c.LocalAddr())
	}
	return l, c.(*net.TCPConn)
}

// overBackends runs f over each engine of the build. One that the kernel
// refuses is skipped with its reason.
func overBackends(t *testing.T, f func(t *testing.T, cfg Config)) {
	t.Helper()
	planetest.OverEngines(t, func(t *testing.T, e planetest.Engine) {
		f(t, Config{Driver: uring.Config{Backend: e.Backend}, Receive: ReceiveMode(e.Receive)})
	})
}

// newPlane starts a plane that ends with the test. A core to which a busy machine gives no time for a while
// does not count as stalled, as that has no counts, unless the test is about stalls.
func newPlane(t testing.TB, cfg Config) *Plane {
	t.Helper()
	cfg.StallAfter = cmp.Or(cfg.StallAfter, patience)
	return planetest.Start(t, cfg.Driver.Backend, func() (*Plane, error) { return New(cfg) })
}

// overPlanes runs f over a plane of each engine of the build.
func overPlanes(t *testing.T, cores int, f func(t *testing.T, p *Plane)) {
	t.Helper()
	overBackends(t, func(t *testing.T, cfg Config) {
		cfg.Cores = cores
		f(t, newPlane(t, cfg))
	})
}
