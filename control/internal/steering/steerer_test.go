package steering

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
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
	s.Close(2)
	s.Begin(2, []int{0}, twoCores(6800))
	s.Close(3)
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

// The program of a predecessor has slots for so many cores. A successor with more takes one of its own.
func TestASuccessorWithMoreCoresThanSlotsTakesANewProgram(t *testing.T) {
	if _, err := bpf.Probe(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must be able to load programs: %v", err)
		}
		t.Skipf("cannot load programs here: %v", err)
	}
	three := listeners(t, 3)
	two := []Group{{three.Addr, three.Listeners[:2]}}
	old, log, _ := broken(t, func(c *Config) {
		c.Load = func(c bpf.Config) (*bpf.Steering, error) { c.MaxCores = 2; return bpf.Load(c) }
	})
	old.Begin(0, []int{0, 1}, two)
	files, err := old.Files(1)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v, log %q", len(files), err, log)
	}
	s, log, _ := broken(t, func(c *Config) { c.Load = bpf.Load })
	s.Adopt(0, []int{0, 1, 2}, files, []netip.AddrPort{three.Addr})
	for _, f := range files {
		_ = f.Close()
	}
	s.Continue([]Group{three})
	if st, err := s.Stats(); err != nil || !st.Active {
		t.Fatalf("%+v, %v, log %q", st, err, log)
	}
	had, errOld := old.groups[0].prog.Cores()
	have, err := s.groups[0].prog.Cores()
	if err != nil || errOld != nil || len(had) > 0 || !slices.Equal(have, []int{0, 1, 2}) {
		t.Errorf("the old program has cores %v, %v, the new one %v, %v", had, errOld, have, err)
	}
	s.Close(1)
	old.Close(1)
}
