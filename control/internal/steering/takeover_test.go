package steering

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
)

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
