package sessions

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// hintMessenger is a messenger whose clock and hint range are the test's.
func hintMessenger(t *testing.T, ports bpf.PortRange) (*Manager, *handClock) {
	t.Helper()
	clock := &handClock{now: time.Unix(1000, 0)}
	m := newManager(t, func(c *Config) {
		c.Name, c.Steering.HintPorts, c.Clock = wire.EntityName{Type: wire.Client, ID: "x"}, ports, clock
	})
	return m, clock
}

// handClock stands still until the test moves it.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }
func (c *handClock) AfterFunc(time.Duration, func()) (stop func() bool) {
	return func() bool { return true }
}

// hinted is a connection that knows the owner core of a peer.
func hinted(t *testing.T, m *Manager, to netip.AddrPort, h steering.Owner) *Conn {
	t.Helper()
	m.lock()
	defer m.unlock()
	p := losslessClient()
	c := m.newConnLocked(m.plane.Core(0), p, m.newSession(p, session.Peer{Target: wire.Addr{Type: wire.AddrMsgr2, AddrPort: to}}), false)
	c.hint.to = h
	return c
}

// dialled is an attempt of c from a hinted port, as far as HELLO.
func dialled(c *Conn, bound, seen uint16) *dialling {
	at := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), seen)}
	return &dialling{c: c, target: c.s.Peer.Target, hinted: bound, a: &attempt{peer: &handshake.Peer{SeenAs: at}}}
}

func TestHintsPauseForAPeerBehindAddressTranslation(t *testing.T) {
	for _, one := range []struct{ bound, seen, translated uint16 }{
		{61001, 61001, 0},
		{0, 40000, 0}, // an ordinary port, whatever it is seen as
		{61001, 1234, 1},
	} {
		m, clock := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61999})
		c := hinted(t, m, netip.MustParseAddrPort("192.0.2.1:6800"), steering.Owner{Core: 1, Cores: 4})
		dialled(c, one.bound, one.seen).checkHint()
		paused := func() bool { return m.hintedPorts(c, c.s.Peer.Target.AddrPort.Addr()) == nil }
		if n := m.hints.Counts().Translated; n != uint64(one.translated) || paused() != (n > 0) {
			t.Errorf("%+v: counted %d, paused %v", one, n, paused())
		}
		if clock.now = clock.now.Add(steering.HintPause); paused() {
			t.Error("the pause does not end")
		}
	}
}

func TestTheNextCookieConfirmsOrContradictsTheHint(t *testing.T) {
	h := steering.Owner{Core: 1, Cores: 4}
	for _, one := range []struct {
		name   string
		bound  uint16
		cookie uint64
		want   steering.HintCounts
		paused bool
	}{
		{"same core", 61001, h.Cookie(7), steering.HintCounts{Confirmed: 1}, false},
		{"another core", 61001, (steering.Owner{Core: 2, Cores: 4}).Cookie(7), steering.HintCounts{Contradicted: 1}, true},
		{"another number of cores", 61001, (steering.Owner{Core: 2, Cores: 5}).Cookie(7), steering.HintCounts{}, false},
		{"an ordinary port", 0, (steering.Owner{Core: 2, Cores: 4}).Cookie(7), steering.HintCounts{}, false},
	} {
		m, _ := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61999})
		c := hinted(t, m, netip.MustParseAddrPort("192.0.2.1:6800"), h)
		d := dialled(c, one.bound, one.bound)
		m.lock()
		d.adoptHintLocked(one.cookie)
		m.unlock()
		if m.hints.Counts() != one.want || m.hints.Paused(c.s.Peer.Target.AddrPort.Addr()) != one.paused {
			t.Errorf("%s: counted %+v, paused %v", one.name, m.hints.Counts(), !one.paused)
		}
		if c.hint.to != steering.ParseCookie(one.cookie) {
			t.Errorf("%s: hint now %+v", one.name, c.hint.to)
		}
	}
}

// socketOf dials as an attempt of c does.
func socketOf(t *testing.T, c *Conn) (*dialling, *loop.Link, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d := &dialling{c: c, target: c.s.Peer.Target, ctx: ctx, a: c.m.newAttempt()}
	link, err := d.dialSocket()
	if err == nil {
		t.Cleanup(link.Close)
	}
	return d, link, err
}

func TestTakenPortsFallBackToAnOrdinaryOne(t *testing.T) {
	// Four ports, of which core 1 of 2 has two.
	ports := freeStretch(t, 4)
	m, _ := hintMessenger(t, ports)
	l := listenTCP(t, "127.0.0.1:0")
	for port := ports.First; port <= ports.Last; port++ {
		if port%2 == 1 {
			listenTCP(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
		}
	}
	c := hinted(t, m, l, steering.Owner{Core: 1, Cores: 2})
	d, link, err := socketOf(t, c)
	must(t, err)
	if d.hinted != 0 || ports.Contains(link.LocalAddr().Port()) {
		t.Errorf("connected from %v, hinted %d", link.LocalAddr(), d.hinted)
	}
	if want := (steering.HintCounts{Busy: 2, Gone: 1}); m.hints.Counts() != want {
		t.Errorf("counted %+v, want %+v", m.hints.Counts(), want)
	}
	c.hint.to.Core = 0
	d, link, err = socketOf(t, c)
	must(t, err)
	got, counts := link.LocalAddr().Port(), m.hints.Counts()
	if got != d.hinted || got%2 != 0 || !ports.Contains(got) || counts.Dialled != 1 || c.s.counters.Hinted != 1 {
		t.Errorf("connected from %d, hinted %d, counted %+v", got, d.hinted, counts)
	}
}

func TestASilentPeerIsDialledFromAnOrdinaryPortNext(t *testing.T) {
	m, _ := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61999})
	c := hinted(t, m, netip.MustParseAddrPort("192.0.2.1:6800"), steering.Owner{Core: 1, Cores: 4})
	d, at := &dialling{c: c, hinted: 61001, a: m.newAttempt()}, c.s.Peer.Target.AddrPort.Addr()
	d.hintFailed()
	if next, last := m.hintedPorts(c, at), m.hintedPorts(c, at); next != nil || last == nil {
		t.Error("it is dialled from a hinted port again, or the doubt lasts longer than one dial")
	}
	overtaken := &dialling{c: c, hinted: 61001, a: m.newAttempt()}
	overtaken.a.cancel(errSuperseded)
	for what, d := range map[string]*dialling{
		"an ordinary port":              {c: c, a: m.newAttempt()},
		"a peer that spoke":             {c: c, a: &attempt{ctx: m.ctx, peer: &handshake.Peer{}}, hinted: 61001},
		"an attempt that was overtaken": overtaken,
	} {
		d.hintFailed()
		if m.hintedPorts(c, at) == nil {
			t.Errorf("%s is no reason to doubt", what)
		}
	}
}

func TestARefusedConnectionIsNotTheFaultOfTheHint(t *testing.T) {
	m, _ := hintMessenger(t, freeStretch(t, 4))
	c := hinted(t, m, netip.MustParseAddrPort("127.0.0.1:1"), steering.Owner{Core: 1, Cores: 2})
	if _, _, err := socketOf(t, c); err == nil {
		t.Fatal("somebody listens on port 1")
	}
	if m.hintedPorts(c, c.s.Peer.Target.AddrPort.Addr()) == nil {
		t.Error("the next dial is not hinted")
	}
}

// freeStretch finds ports above the ephemeral ones that nobody uses.
func freeStretch(t *testing.T, n int) bpf.PortRange {
	t.Helper()
	r, err := bpf.LocalHintRange(n)
	if err != nil {
		t.Skipf("no ports to spare: %v", err)
	}
	for range 100 {
		first := r.First + uint16(rand.IntN(r.Len()-n))
		got := bpf.PortRange{First: first, Last: first + uint16(n) - 1}
		if unused(got) {
			return got
		}
	}
	t.Fatalf("no %d free ports in a row in %v", n, r)
	return bpf.PortRange{}
}

func unused(r bpf.PortRange) bool {
	for port := r.First; port <= r.Last; port++ {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: int(port)})
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

func listenTCP(t *testing.T, at string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", at)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}
