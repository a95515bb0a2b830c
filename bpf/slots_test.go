package bpf

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// reach connects from any port of ip, on a CPU (-1: any), and returns the core that got it.
func reach(t testing.TB, g *group, ip string, cpu int) int {
	t.Helper()
	fd := dial(t, anyPort(netip.MustParseAddr(ip)), g.addr, cpu)
	core := g.accept(t)
	must(t, unix.Close(fd))
	return core
}

func wantCores(t testing.TB, s *Steering, want ...int) {
	t.Helper()
	if got, err := s.Cores(); err != nil || !slices.Equal(got, want) {
		t.Errorf("cores %v, %v, want %v", got, err, want)
	}
}

func TestCPUsComeBackWithTheirCore(t *testing.T) {
	a, _ := someCPUs(t)
	home := make([]int, a+1)
	home[a] = 1
	s := mustLoad(t, Config{MaxCores: 2, Policy: Policy{Rules: UseCPU, Cores: 2, CPUs: home}})
	g := listen(t, "127.0.0.1", 2)
	g.steer(t, s)
	try := func(when string, want int) {
		t.Helper()
		if core := reach(t, g, "127.81.4.5", a); core != want {
			t.Errorf("%s: core %d, want %d", when, core, want)
		}
	}
	try("before", 1)
	must(t, s.Drain(1))
	try("drained", 0)
	must(t, s.Add(1, g.fds[1]))
	try("added again", 1)
	if c := snapshot(t, s); c.Hash != 0 || c.Total().Missed() != 0 {
		t.Errorf("counters\n%v", c)
	}
}

func TestOneSocketFitsInOneSlot(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 2})
	g := listen(t, "127.0.0.1", 1)
	g.steer(t, s)
	must(t, s.Add(1, g.fds[0])) // it leaves the other
	wantCores(t, s, 1)
	must(t, s.Drain(1))
	must(t, s.Drain(1)) // again
	must(t, s.Add(0, g.fds[0]))
	wantCores(t, s, 0)
	other := mustLoad(t, Config{MaxCores: 2})
	if err := other.Add(0, g.fds[0]); !errors.Is(err, errListener) || !errors.Is(err, unix.EBUSY) {
		t.Errorf("a slot of another program: %v", err)
	}
	wantCores(t, s, 0)
}

func TestWhatIsNoListenerIsRefused(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 2})
	g := listen(t, "127.0.0.1", 1)
	unbound := openSocket(t, g.addr.Addr())
	defer unix.Close(unbound)
	alone := openSocket(t, g.addr.Addr()) // without SO_REUSEPORT
	defer unix.Close(alone)
	must(t, unix.Bind(alone, sockaddr(netip.AddrPortFrom(g.addr.Addr(), 0))))
	must(t, unix.Listen(alone, 1))
	local, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(local)
	multipath, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err == nil { // else the kernel has none
		defer unix.Close(multipath)
		must(t, unix.SetsockoptInt(multipath, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		must(t, unix.Bind(multipath, sockaddr(netip.AddrPortFrom(g.addr.Addr(), 0))))
		must(t, unix.Listen(multipath, 1))
		if err := s.Attach(multipath); !errors.Is(err, errListener) {
			t.Errorf("attach to multipath socket: %v", err)
		}
		if err := s.Add(0, multipath); !errors.Is(err, errListener) {
			t.Errorf("add multipath socket: %v", err)
		}
	}
	for name, fd := range map[string]int{"unbound": unbound, "alone": alone, "local": local, "closed": -1} {
		if err := s.Add(0, fd); !errors.Is(err, errListener) {
			t.Errorf("add %s socket: %v", name, err)
		}
		if name == "unbound" {
			continue // no group yet, which the kernel may accept
		}
		if err := s.Attach(fd); !errors.Is(err, errListener) {
			t.Errorf("attach to %s socket: %v", name, err)
		}
	}
	wantCores(t, s)
	if err := s.SetPolicy(Policy{Rules: UseCPU, Cores: 3}); !errors.Is(err, ErrPolicy) {
		t.Errorf("a policy for more cores than there are slots: %v", err)
	}
	for _, core := range []int{-1, 2} {
		for i, err := range []error{s.Add(core, g.fds[0]), s.Drain(core), s.Remove(core), s.Pin(anyPort(g.addr.Addr()), core), s.Pin(g.addr, core)} {
			if !errors.Is(err, errCore) {
				t.Errorf("core %d, call %d: %v", core, i, err)
			}
		}
	}
}

func TestPinsOutliveADrainAndNotARemove(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 2})
	g := listen(t, "127.0.0.1", 2)
	g.steer(t, s)
	a, b := netip.MustParseAddr("127.81.5.1"), netip.MustParseAddr("::5")
	must(t, s.Pin(anyPort(a), 1))
	must(t, s.Pin(anyPort(b), 0))
	for port := range uint16(200) {
		must(t, s.Pin(netip.AddrPortFrom(a, port+1), int(port%2)))
	}
	count := func() (on [2]int) {
		for port := range uint16(200) {
			if core, ok, err := s.Pinned(netip.AddrPortFrom(a, port+1)); err != nil {
				t.Fatal(err)
			} else if ok {
				on[core]++
			}
		}
		return on
	}
	must(t, s.Drain(1))
	if core, ok, err := s.Pinned(anyPort(a)); core != 1 || !ok || err != nil || count() != [2]int{100, 100} {
		t.Errorf("after drain: %d %v %v, %v", core, ok, err, count())
	}
	must(t, s.Remove(1))
	if _, ok, err := s.Pinned(anyPort(a)); ok || err != nil || count() != [2]int{100, 0} {
		t.Errorf("after remove: %v %v, %v", ok, err, count())
	}
	wantPin(t, s, anyPort(b), 0)
}

// anyPort is a peer for a pin of its address alone.
func anyPort(addr netip.Addr) netip.AddrPort { return netip.AddrPortFrom(addr, 0) }

// wantPin wants peer to be pinned to a core, -1: to none.
func wantPin(t testing.TB, s *Steering, peer netip.AddrPort, want int) {
	t.Helper()
	if core, ok, err := s.Pinned(peer); err != nil || ok != (want >= 0) || ok && core != want {
		t.Errorf("%v is pinned to %d (%v, %v), want %d", peer, core, ok, err, want)
	}
}

func TestPinsAreOneForIPv4AndMapped(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 4})
	v4, mapped := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1")
	zone, bare := netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("fe80::1")
	must(t, s.Pin(anyPort(v4), 1))
	must(t, s.Pin(anyPort(zone), 2))
	must(t, s.Pin(netip.AddrPortFrom(mapped, 7), 3))
	wantPin(t, s, anyPort(mapped), 1)
	wantPin(t, s, anyPort(bare), 2)
	wantPin(t, s, netip.AddrPortFrom(v4, 7), 3)
	must(t, s.Unpin(anyPort(mapped)))
	must(t, s.Unpin(anyPort(mapped))) // again
	must(t, s.Unpin(netip.AddrPortFrom(v4, 7)))
	wantPin(t, s, anyPort(v4), -1)
	wantPin(t, s, netip.AddrPortFrom(mapped, 7), -1)
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("0.0.0.0:1"), netip.MustParseAddrPort("[::]:1"), netip.MustParseAddrPort("224.0.0.1:1")} {
		_, _, err := s.Pinned(bad)
		for i, err := range []error{s.Pin(bad, 0), s.Unpin(bad), err} {
			if !errors.Is(err, errAddr) {
				t.Errorf("%v, call %d: %v", bad, i, err)
			}
		}
	}
}

func TestTableIsBounded(t *testing.T) {
	const size = 512
	s := mustLoad(t, Config{MaxCores: 1, TableSize: size})
	last := netip.Addr{}
	for i := range 3 * size {
		last = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		must(t, s.Pin(anyPort(last), 0))
	}
	n := 0
	for i := range 3 * size {
		if _, ok, err := s.Pinned(anyPort(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))); err != nil {
			t.Fatal(err)
		} else if ok {
			n++
		}
	}
	if n == 0 || n > size {
		t.Errorf("%d entries, table of %d", n, size)
	}
	if _, ok, _ := s.Pinned(anyPort(last)); !ok {
		t.Error("the newest entry is gone")
	}
}

func TestCountersHaveATextForm(t *testing.T) {
	c := Counters{
		Cores: []CoreCounters{
			{AddrPort: RuleCounters{1, 2}, CPU: RuleCounters{Selected: 7}, Migrated: 1},
			{},
			{Hint: RuleCounters{3, 0}, Addr: RuleCounters{0, 4}},
		},
		NoCore: CoreCounters{CPU: RuleCounters{0, 5}},
		Hash:   9, HashMigrated: 6,
	}
	want := "" +
		"  core  table_addrport  table_addr  hint  cpu  migrated\n" +
		"     0             1/2           0     0    7         1\n" +
		"     2               0         0/4     3    0         0\n" +
		"  none               0           0     0  0/5         0\n" +
		"   all             1/2         0/4     3  7/5         1\n" +
		"hash: 9, migrated 6\n"
	if got := c.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if total := c.Total(); total.AddrPort.Selected+total.Hint.Selected+total.CPU.Selected != 11 || total.Missed() != 11 {
		t.Errorf("%+v", total)
	}
}
