package steering

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/uring"
)

// broken is a Steerer whose programs do not load, and its log.
func broken(t *testing.T, change func(*Config)) (s *Steerer, log *bytes.Buffer, loads *int) {
	t.Helper()
	log, loads = &bytes.Buffer{}, new(int)
	cfg := Config{
		Mode: "table", Rules: bpf.UseTable, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Load: func(bpf.Config) (*bpf.Steering, error) {
			*loads++
			if s.mu.TryLock() {
				t.Error("it loads without its lock")
			}
			return nil, &bpf.LoadError{Missing: "CAP_BPF", Remedy: "be root", Err: bpf.ErrUnsupported}
		},
	}
	if change != nil {
		change(&cfg)
	}
	s = New(cfg)
	return s, log, loads
}

// twoCores are groups of two listeners each.
func twoCores(ports ...uint16) (groups []Group) {
	for _, p := range ports {
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p)
		groups = append(groups, Group{Addr: at, Listeners: []Listener{{0, -1}, {1, -1}}})
	}
	return groups
}

func TestAProgramThatDoesNotLoadLeavesAllAddressesUnsteered(t *testing.T) {
	s, log, loads := broken(t, nil)
	s.Begin(0, []int{0, 1}, twoCores(6800, 6801))
	st, err := s.Stats()
	if err != nil || st.Active || st.Why != bpf.ErrUnsupported.Error() || st.Missing != "CAP_BPF" || st.Remedy != "be root" || *loads != 1 {
		t.Errorf("%+v, %v, loaded %d times", st, err, *loads)
	}
	if text := log.String(); !strings.Contains(text, "level=WARN") || strings.Count(text, "\n") != 1 {
		t.Errorf("log: %q", text)
	}
	// It stays so until the addresses are given up.
	s.Join(2, []int{0, 1, 2}, twoCores(6800, 6801))
	s.Follow(0, []int{0, 1}, twoCores(6802, 6803))
	if *loads != 1 {
		t.Errorf("loaded %d times", *loads)
	}
	s.Close(1)
	s.Follow(1, []int{0, 1}, twoCores(6802, 6803))
	if *loads != 2 {
		t.Errorf("listening again: loaded %d times", *loads)
	}
}

func TestWhatNobodyWantsSteeredIsNoWarning(t *testing.T) {
	for name, one := range map[string]struct {
		change func(*Config)
		cores  []int
		log    string
	}{
		"off":        {func(c *Config) { c.Off = errors.New("switched off") }, []int{0, 1}, ""},
		"one core":   {nil, []int{0}, ""},
		"left to us": {func(c *Config) { c.Auto = true }, []int{0, 1}, "level=INFO"},
	} {
		s, log, _ := broken(t, one.change)
		s.Begin(0, one.cores, twoCores(6800))
		if got := log.String(); (one.log == "") != (got == "") || !strings.Contains(got, one.log) {
			t.Errorf("%s: %q", name, got)
		}
		if st, err := s.Stats(); err != nil || st.Active || st.Why == "" {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
	}
}

func TestTheSecondCoreBeginsToSteer(t *testing.T) {
	s, _, loads := broken(t, nil)
	s.Join(1, []int{0, 1}, twoCores(6800)) // not bound: nothing to steer
	s.Begin(0, []int{0}, twoCores(6800))
	if *loads != 0 {
		t.Errorf("loaded %d times for one core", *loads)
	}
	s.Join(1, []int{0, 1}, nil) // not bound any more
	s.Join(1, []int{0, 1}, twoCores(6800))
	if *loads != 1 {
		t.Errorf("loaded %d times for two cores", *loads)
	}
}

func TestAfterCloseNothingIsSteered(t *testing.T) {
	s, _, loads := broken(t, nil)
	s.Begin(0, []int{0}, twoCores(6800))
	s.Close(1)
	s.Join(1, []int{0, 1}, twoCores(6800))
	s.Continue(twoCores(6800))
	if *loads != 0 {
		t.Errorf("loaded %d times", *loads)
	}
}

// A Close that is late leaves alone what listens again.
func TestALateCloseClosesOnlyWhatWasGivenUp(t *testing.T) {
	s, _, _ := broken(t, nil)
	s.Begin(1, []int{0, 1}, twoCores(6800))
	s.Close(1)
	if st, err := s.Stats(); err != nil || st.Why != bpf.ErrUnsupported.Error() {
		t.Errorf("%+v, %v", st, err)
	}
	for taken := range uint64(2) { // by Follow, and Follow after Close
		s.Follow(taken+2, []int{0, 1}, twoCores(6801))
		if s.Close(taken + 2); s.phase != open {
			t.Error("a late Close has closed it")
		}
		s.Close(taken + 3)
	}
	s.Begin(4, []int{0}, twoCores(6800))
	if s.Close(4); s.phase != open {
		t.Error("a late Close has closed what began")
	}
	s.Close(5)
	if s.phase != closed {
		t.Error("still open")
	}
}

func TestPinsAreRefusedInWords(t *testing.T) {
	pin := func(s *Steerer, check error) error {
		return s.Pin(func() error { return check }, func(*bpf.Steering) error {
			t.Error("pinned")
			return nil
		})
	}
	s, _, _ := broken(t, nil)
	noSuchCore := errors.New("no such core")
	if err := pin(s, noSuchCore); err != noSuchCore {
		t.Errorf("the check comes first: %v", err)
	}
	if err := pin(s, nil); !errors.Is(err, ErrUnsteered) || !strings.Contains(err.Error(), "not bound") {
		t.Errorf("before Begin: %v", err)
	}
	s.Begin(0, []int{0, 1}, twoCores(6800))
	if err := pin(s, nil); !errors.Is(err, ErrUnsteered) || !errors.Is(err, bpf.ErrUnsupported) {
		t.Errorf("not loaded: %v", err)
	}
	if core, ok := s.Pinned(netip.MustParseAddrPort("127.0.0.1:1")); ok {
		t.Errorf("pinned to %d", core)
	}
}

func TestCPUsAreSpreadOverTheCoresAsPinnedThreadsAre(t *testing.T) {
	for _, one := range []struct {
		cores   int
		allowed []int
		cpus    int
		want    string
	}{
		{4, []int{0, 1, 2, 3}, 4, "[0 1 2 3]"},
		{2, []int{0, 1, 2, 3}, 4, "[0 1 0 1]"},      // fewer cores than CPUs
		{4, []int{0, 1}, 2, "[0 1]"},                // more
		{2, []int{2, 3}, 4, "[0 1 0 1]"},            // a part of the machine
		{3, []int{4, 6, 7}, 8, "[0 1 2 0 0 2 1 2]"}, // with a gap; the others are spread
	} {
		if got := fmt.Sprint(coreOfCPU(one.cores, one.allowed, one.cpus)); got != one.want {
			t.Errorf("%+v: %s", one, got)
		}
	}
}

// listeners are n sockets of one address.
func listeners(t *testing.T, n int) Group {
	t.Helper()
	g := Group{Addr: netip.MustParseAddrPort("127.0.0.1:0")}
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return err
	}}
	cfg.SetMultipathTCP(false)
	for core := range n {
		l, err := cfg.Listen(t.Context(), "tcp4", g.Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		g.Addr = l.Addr().(*net.TCPAddr).AddrPort()
		g.Listeners = append(g.Listeners, Listener{core, int(f.Fd())})
	}
	return g
}

// needPrograms skips the test where the process cannot load programs.
func needPrograms(t *testing.T) {
	t.Helper()
	if _, err := bpf.Probe(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must be able to load programs: %v", err)
		}
		t.Skipf("cannot load programs here: %v", err)
	}
}

// On a part of the machine the core of a CPU is not its number modulo the number of cores.
func TestTheOnlyAllowedCPUBelongsToTheFirstCore(t *testing.T) {
	needPrograms(t)
	runtime.LockOSThread() // for ever: the thread, which is pinned, ends with the test
	cpus, err := uring.AllowedCPUs()
	odd := slices.IndexFunc(cpus, func(cpu int) bool { return cpu%2 == 1 })
	if odd < 0 {
		t.Skipf("no CPU with an odd number is allowed: %v, %v", cpus, err)
	}
	if err := uring.PinThread(cpus[odd]); err != nil {
		t.Fatal(err)
	}
	s, log, _ := broken(t, func(c *Config) { c.Load, c.Rules = bpf.Load, bpf.UseCPU })
	two := listeners(t, 2)
	s.Begin(0, []int{0, 1}, []Group{two})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: two.Addr.Addr().As4(), Port: int(two.Addr.Port())}) // on this CPU
		defer unix.Close(fd)
	}
	st, errStats := s.Stats()
	if err != nil || errStats != nil || len(st.Groups) != 1 {
		t.Fatalf("%v, %v, %+v, log %q", err, errStats, st, log)
	}
	if got := st.Groups[0].Counters.Cores; got[0].CPU.Selected != 1 || got[1].CPU.Selected != 0 {
		t.Errorf("one connection from CPU %d went to the cores %+v", cpus[odd], got)
	}
	s.Close(1)
}

// The program of a predecessor has slots for so many cores. A successor with more takes programs of its own. If they do
// not load, none of the predecessor's stays in force.
func TestASuccessorWithMoreCoresThanSlotsTakesNewPrograms(t *testing.T) {
	needPrograms(t)
	for _, loads := range []bool{true, false} {
		all := []Group{listeners(t, 3), listeners(t, 3)}
		old, log, _ := broken(t, func(c *Config) {
			c.Load = func(c bpf.Config) (*bpf.Steering, error) { c.MaxCores = 2; return bpf.Load(c) }
		})
		old.Begin(0, []int{0, 1}, []Group{{all[0].Addr, all[0].Listeners[:2]}, {all[1].Addr, all[1].Listeners[:2]}})
		files, err := old.Files(2)
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files, %v, log %q", len(files), err, log)
		}
		s, log, _ := broken(t, func(c *Config) {
			if loads {
				c.Load = bpf.Load
			}
		})
		s.Adopt(0, []int{0, 1, 2}, files, []netip.AddrPort{all[0].Addr, all[1].Addr})
		for _, f := range files {
			_ = f.Close()
		}
		s.Continue(all)
		if st, err := s.Stats(); err != nil || st.Active != loads {
			t.Fatalf("%+v, %v, log %q", st, err, log)
		}
		for i, g := range old.groups {
			if had, err := g.prog.Cores(); err != nil || len(had) > 0 {
				t.Errorf("loads: %v, old program %d has cores %v, %v", loads, i, had, err)
			}
		}
		for i, g := range s.groups {
			if have, err := g.prog.Cores(); err != nil || !slices.Equal(have, []int{0, 1, 2}) {
				t.Errorf("new program %d has cores %v, %v", i, have, err)
			}
		}
		s.Close(1)
		old.Close(1)
	}
}
