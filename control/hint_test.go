package control

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestEveryOwnerSurvivesTheCookie(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for cores := 2; cores <= maxHintCores; cores++ {
		for core := range cores {
			for range 4 {
				h := ownerHint{core: core, cores: cores}
				if got := parseHint(h.cookie(rng.Uint64())); got != h {
					t.Fatalf("%+v comes back as %+v", h, got)
				}
			}
		}
	}
}

// What stands in the cookie besides the hint are 48 bits of the random source,
// each of them.
func TestACookieKeeps48RandomBits(t *testing.T) {
	h := ownerHint{core: 2, cores: 4}
	for bit := range 48 {
		if h.cookie(1<<bit)>>16 != 1<<bit {
			t.Errorf("bit %d of the random number is lost", bit)
		}
	}
}

// To who does not know the hash, the low bits of cookies with the same hint look
// random: each value of each half is about as frequent as the others, each bit
// is set half of the time, and no two bits go together.
func TestCookiesWithTheSameHintLookRandom(t *testing.T) {
	const n = 1 << 16
	rng := rand.New(rand.NewPCG(3, 4))
	for _, h := range []ownerHint{{0, 2}, {1, 4}, {63, 64}} {
		var bytesLow, bytesHigh [256]int
		var bits [64]int
		var pairs [16][16]int
		for range n {
			c := h.cookie(rng.Uint64())
			bytesLow[byte(c)]++
			bytesHigh[byte(c>>8)]++
			for b := range 64 {
				bits[b] += int(c >> b & 1)
			}
			for a := range 16 {
				for b := range a {
					pairs[a][b] += int((c>>a ^ c>>b) & 1)
				}
			}
		}
		for _, counts := range [][]int{bytesLow[:], bytesHigh[:]} {
			// 255 degrees of freedom: mean 255, deviation 22.6.
			if x := chiSquare(counts); x < 130 || x > 400 {
				t.Errorf("%+v: chi square of a byte %.0f", h, x)
			}
		}
		limit := 6 * math.Sqrt(n) / 2
		for b, ones := range bits {
			if math.Abs(float64(ones)-n/2) > limit {
				t.Errorf("%+v: bit %d set %d times of %d", h, b, ones, n)
			}
		}
		for a := range 16 {
			for b := range a {
				if math.Abs(float64(pairs[a][b])-n/2) > limit {
					t.Errorf("%+v: bits %d and %d differ %d times of %d", h, a, b, pairs[a][b], n)
				}
			}
		}
	}
}

// chiSquare compares counts with a uniform distribution.
func chiSquare(counts []int) float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	want := float64(total) / float64(len(counts))
	x := 0.0
	for _, n := range counts {
		x += (float64(n) - want) * (float64(n) - want) / want
	}
	return x
}

func TestFewForeignCookiesAreTakenForAHint(t *testing.T) {
	const n = 1 << 18
	rng := rand.New(rand.NewPCG(5, 6))
	taken := 0
	for range n {
		if h := parseHint(rng.Uint64()); h.known() {
			taken++
			if h.core < 0 || h.core >= h.cores || h.cores > maxHintCores {
				t.Fatalf("impossible hint %+v", h)
			}
		}
	}
	want := float64(n) * hintPairs / (1 << 16)
	if math.Abs(float64(taken)-want) > 6*math.Sqrt(want) {
		t.Errorf("%d of %d foreign cookies are taken for a hint, expected about %.0f", taken, n, want)
	}
	if parseHint(0).known() {
		t.Error("no cookie is taken for a hint")
	}
}

func FuzzHint(f *testing.F) {
	f.Add(uint64(0), uint8(0), uint8(2))
	f.Add(uint64(math.MaxUint64), uint8(63), uint8(64))
	f.Add(ownerHint{1, 4}.cookie(12345), uint8(1), uint8(4))
	f.Fuzz(func(t *testing.T, n uint64, core, cores uint8) {
		if h := parseHint(n); h.known() {
			if h.core < 0 || h.core >= h.cores || h.cores > maxHintCores {
				t.Fatalf("impossible hint %+v", h)
			}
			if h.cookie(n>>16) != n {
				t.Fatalf("cookie %#x does not come back from %+v", n, h)
			}
		}
		h := ownerHint{core: int(core), cores: int(cores)}
		if h.cores < 2 || h.cores > maxHintCores || h.core >= h.cores {
			return
		}
		if c := h.cookie(n); c != 0 && parseHint(c) != h {
			t.Fatalf("%+v comes back as %+v", h, parseHint(c))
		}
	})
}

// hintMessenger is a messenger whose clock and hint range are the test's.
func hintMessenger(t *testing.T, ports bpf.PortRange) (*Messenger, *handClock) {
	t.Helper()
	clock := &handClock{now: time.Unix(1000, 0)}
	m, err := New(Config{
		Name: wire.EntityName{Type: wire.Client, ID: "x"}, HintPorts: ports, Clock: clock,
		Plane: dataplane.Config{Cores: 1, Driver: uring.Config{Backend: uring.Epoll}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
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
func hinted(t *testing.T, m *Messenger, to netip.AddrPort, h ownerHint) *Conn {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.newConn(m.plane.Core(0), LosslessClient())
	c.target = wire.Addr{Type: wire.AddrMsgr2, AddrPort: to}
	c.hint.to = h
	return c
}

func TestHintedPortsLeadToTheOwner(t *testing.T) {
	m, _ := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61999})
	for _, to := range []string{"192.0.2.1:6800", "[2001:db8::1]:6800", "[::ffff:192.0.2.1]:6800"} {
		peer := netip.MustParseAddrPort(to)
		ports := m.hintedPorts(hinted(t, m, peer, ownerHint{core: 3, cores: 7}))
		if len(ports) != hintAttempts {
			t.Fatalf("%d ports", len(ports))
		}
		seen := map[uint16]bool{}
		for _, p := range ports {
			if p.Port()%7 != 3 || p.Port() < 61000 || p.Port() > 61999 || seen[p.Port()] {
				t.Errorf("port %d", p.Port())
			}
			seen[p.Port()] = true
			if !p.Addr().IsUnspecified() || p.Addr().Is4() != peer.Addr().Unmap().Is4() {
				t.Errorf("bind to %v for a peer at %v", p, peer)
			}
		}
	}
	if ports := m.hintedPorts(hinted(t, m, netip.MustParseAddrPort("192.0.2.1:6800"), ownerHint{})); ports != nil {
		t.Errorf("ports %v without a hint", ports)
	}
	small, _ := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61007})
	if ports := small.hintedPorts(hinted(t, small, netip.MustParseAddrPort("192.0.2.1:6800"), ownerHint{core: 1, cores: 4})); len(ports) != 2 {
		t.Errorf("a range with two ports for the core gives %v", ports)
	}
}

// dialled is an attempt of c from a hinted port, as far as HELLO.
func dialled(c *Conn, bound, seen uint16) *dialling {
	at := wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), seen)}
	return &dialling{c: c, hinted: bound, peer: &handshake.Peer{SeenAs: at}}
}

func TestHintsPauseForAPeerBehindAddressTranslation(t *testing.T) {
	m, clock := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61999})
	peer := netip.MustParseAddrPort("192.0.2.1:6800")
	c := hinted(t, m, peer, ownerHint{core: 1, cores: 4})
	other := hinted(t, m, netip.MustParseAddrPort("192.0.2.2:6800"), ownerHint{core: 1, cores: 4})
	hello := func(bound, seen uint16) {
		m.mu.Lock()
		defer m.mu.Unlock()
		dialled(c, bound, seen).checkHint()
	}
	hello(61001, 61001)
	if m.hintedPorts(c) == nil {
		t.Fatal("the hint held, and is not followed any more")
	}
	hello(0, 40000) // an ordinary port, whatever it is seen as
	if m.hintedPorts(c) == nil || m.counters.Hints.Translated != 0 {
		t.Fatal("an ordinary port says nothing about hints")
	}
	hello(61001, 1234)
	if m.hintedPorts(c) != nil || m.counters.Hints.Translated != 1 {
		t.Error("hints go on through address translation")
	}
	if m.hintedPorts(other) == nil {
		t.Error("another peer gets no hints")
	}
	clock.now = clock.now.Add(hintPause)
	if m.hintedPorts(c) == nil {
		t.Error("the pause does not end")
	}
}

func TestTheNextCookieConfirmsOrContradictsTheHint(t *testing.T) {
	m, _ := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61999})
	h := ownerHint{core: 1, cores: 4}
	for _, one := range []struct {
		name   string
		bound  uint16
		cookie uint64
		want   HintCounters
		paused bool
	}{
		{"same core", 61001, h.cookie(7), HintCounters{Confirmed: 1}, false},
		{"another core", 61001, ownerHint{2, 4}.cookie(7), HintCounters{Contradicted: 1}, true},
		{"another number of cores", 61001, ownerHint{2, 5}.cookie(7), HintCounters{}, false},
		{"an ordinary port", 0, ownerHint{2, 4}.cookie(7), HintCounters{}, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			m.counters.Hints, m.noHints = HintCounters{}, nil
			c := hinted(t, m, netip.MustParseAddrPort("192.0.2.1:6800"), h)
			m.mu.Lock()
			defer m.mu.Unlock()
			dialled(c, one.bound, one.bound).adoptHint(one.cookie)
			if m.counters.Hints != one.want || m.hintsPaused(c.target.AddrPort.Addr()) != one.paused {
				t.Errorf("counted %+v, paused %v", m.counters.Hints, !one.paused)
			}
			if c.hint.to != parseHint(one.cookie) {
				t.Errorf("hint now %+v", c.hint.to)
			}
		})
	}
}

// socketOf dials as an attempt of c does.
func socketOf(t *testing.T, c *Conn) (*dialling, *dataplane.Link, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d := &dialling{c: c, ctx: ctx, a: c.m.newAttempt()}
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
	c := hinted(t, m, l, ownerHint{core: 1, cores: 2})
	d, link, err := socketOf(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if d.hinted != 0 || ports.Contains(link.LocalAddr().Port()) {
		t.Errorf("connected from %v, hinted %d", link.LocalAddr(), d.hinted)
	}
	if want := (HintCounters{Busy: 2, Gone: 1}); m.counters.Hints != want {
		t.Errorf("counted %+v, want %+v", m.counters.Hints, want)
	}
	c.hint.to.core = 0
	d, link, err = socketOf(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if got := link.LocalAddr().Port(); got != d.hinted || got%2 != 0 || !ports.Contains(got) {
		t.Errorf("connected from %d, hinted %d", got, d.hinted)
	}
	if m.counters.Hints.Dialled != 1 || c.counters.Hinted != 1 {
		t.Errorf("counted %+v", m.counters.Hints)
	}
}

func TestASilentPeerIsDialledFromAnOrdinaryPortNext(t *testing.T) {
	m, _ := hintMessenger(t, bpf.PortRange{First: 61000, Last: 61999})
	c := hinted(t, m, netip.MustParseAddrPort("192.0.2.1:6800"), ownerHint{core: 1, cores: 4})
	d := &dialling{c: c, hinted: 61001, a: m.newAttempt()}
	d.doubtHint()
	if m.hintedPorts(c) != nil {
		t.Error("it is dialled from a hinted port again")
	}
	if m.hintedPorts(c) == nil {
		t.Error("the doubt lasts longer than one dial")
	}
	for what, d := range map[string]*dialling{
		"an ordinary port":              {c: c, a: m.newAttempt()},
		"a peer that spoke":             {c: c, a: m.newAttempt(), hinted: 61001, peer: &handshake.Peer{}},
		"an attempt that was overtaken": overtaken(m, &dialling{c: c, hinted: 61001}),
	} {
		d.doubtHint()
		if m.hintedPorts(c) == nil {
			t.Errorf("%s is no reason to doubt", what)
		}
	}
}

func overtaken(m *Messenger, d *dialling) *dialling {
	d.a = m.newAttempt()
	d.a.cancel(errOvertaken)
	return d
}

func TestARefusedConnectionIsNotTheFaultOfTheHint(t *testing.T) {
	m, _ := hintMessenger(t, freeStretch(t, 4))
	c := hinted(t, m, netip.MustParseAddrPort("127.0.0.1:1"), ownerHint{core: 1, cores: 2})
	if _, _, err := socketOf(t, c); err == nil {
		t.Fatal("somebody listens on port 1")
	}
	if m.hintedPorts(c) == nil {
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

func BenchmarkHintCookie(b *testing.B) {
	b.ReportAllocs()
	h := ownerHint{core: 1, cores: 4}
	for i := range b.N {
		if parseHint(h.cookie(uint64(i))) != h {
			b.Fatal("lost")
		}
	}
}
