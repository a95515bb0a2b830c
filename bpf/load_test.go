package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// withCapabilities runs f on a thread whose effective capabilities are the
// given ones of those that it has. The thread ends with f.
func withCapabilities(t *testing.T, keep uint64, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies
		err := limitCapabilities(keep)
		if err == nil {
			f()
		}
		done <- err
	}()
	must(t, <-done)
}

func limitCapabilities(keep uint64) error {
	var data [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	for i := range data {
		data[i].Effective &= uint32(keep >> (32 * i))
		data[i].Permitted = data[i].Effective
		data[i].Inheritable = 0
	}
	return unix.Capset(&hdr, &data[0])
}

func TestWithoutCapabilityLoadNamesTheRemedy(t *testing.T) {
	var err error
	withCapabilities(t, 0, func() { _, err = Load(Config{}) })
	var e *LoadError
	if !errors.As(err, &e) || e.Missing != "CAP_BPF" || !strings.Contains(e.Remedy, "setcap cap_bpf+ep") {
		t.Fatalf("%#v", err)
	}
	if !errors.Is(err, ErrPermission) || !errors.Is(err, fs.ErrPermission) || !errors.Is(err, unix.EPERM) || errors.Is(err, ErrUnsupported) {
		t.Errorf("wrong kind: %v", err)
	}
}

func TestLoadNeedsOneCapabilityAndTheRestNone(t *testing.T) {
	mustLoad(t, Config{})
	var s *Steering
	var err error
	withCapabilities(t, 1<<unix.CAP_BPF, func() { s, err = Load(Config{MaxCores: 1}) })
	must(t, err)
	defer s.Close()
	g := listen(t, "127.0.0.1", 1)
	withCapabilities(t, 0, func() {
		p := defaultPolicy(1)
		err = errors.Join(s.Attach(g.fds[0]), s.Add(0, g.fds[0]), s.SetPolicy(p), s.Pin(anyPort(g.addr.Addr()), 0), s.Unpin(anyPort(g.addr.Addr())), s.Drain(0))
		_, cErr := s.Counters()
		err = errors.Join(err, cErr)
	})
	if errors.Is(err, unix.EPERM) && kernelBefore(t, 5, 19) {
		t.Skip("before Linux 5.19 every use needs the capability")
	}
	if err != nil {
		t.Error(err)
	}
}

func kernelBefore(t testing.TB, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	must(t, unix.Uname(&u))
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return a < major || a == major && b < minor
}

func TestDiagnosis(t *testing.T) {
	root := host{caps: 1 << unix.CAP_BPF, initialUserNS: true, memlock: unix.RLIM_INFINITY}
	small, inside, admin := root, root, root
	small.memlock = 65536
	inside.initialUserNS = false
	admin.caps = 1 << unix.CAP_SYS_ADMIN
	for _, c := range []struct {
		err     error
		host    host
		missing string
		kind    error
	}{
		{unix.EPERM, host{unprivileged: "2"}, "CAP_BPF", ErrPermission},
		{unix.EPERM, host{caps: 1 << unix.CAP_NET_ADMIN}, "CAP_BPF", ErrPermission},
		{unix.EPERM, inside, "initial user namespace", ErrPermission},
		{unix.EPERM, small, "RLIMIT_MEMLOCK", ErrPermission},
		{unix.EPERM, root, "permission", ErrPermission},
		{unix.EACCES, admin, "permission", ErrPermission},
		{unix.ENOSYS, root, "bpf system call", ErrUnsupported},
		{unix.EINVAL, root, "SK_REUSEPORT (Linux 4.19)", ErrUnsupported},
		{&ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"invalid bpf_context access"}}, root, "verifier's consent", ErrUnsupported},
		{ebpf.ErrNotSupported, root, "SK_REUSEPORT (Linux 4.19)", ErrUnsupported},
	} {
		err := diagnose(fmt.Errorf("create map: %w", c.err), c.host)
		var e *LoadError
		if !errors.As(err, &e) || e.Missing != c.missing || e.Remedy == "" {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if !errors.Is(err, c.kind) || !errors.Is(err, c.err) {
			t.Errorf("%v: wrong kind: %v", c, err)
		}
	}
	if err := diagnose(unix.ENOMEM, root); errors.As(err, new(*LoadError)) || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("out of memory: %v", err)
	}
}

func TestBadConfigIsRefusedBeforeLoading(t *testing.T) {
	for name, cfg := range map[string]Config{
		"negative slots":         {MaxCores: -1},
		"too many slots":         {MaxCores: MaxCores + 1},
		"negative table":         {TableSize: -1},
		"huge table":             {TableSize: 1<<24 + 1},
		"bad policy":             {Policy: Policy{Rules: UseCPU}},
		"more cores than slots":  {MaxCores: 2, Policy: defaultPolicy(3)},
		"ephemeral ports hinted": {Policy: Policy{Rules: UseHint, Cores: 1, Hint: PortRange{1, 65535}}},
	} {
		if s, err := Load(cfg); err == nil {
			s.Close()
			t.Errorf("%s: loaded", name)
		} else if errors.As(err, new(*LoadError)) {
			t.Errorf("%s: asked the kernel: %v", name, err)
		}
	}
}

func TestLoadReportsWhatItGot(t *testing.T) {
	cpus, err := ebpf.PossibleCPU()
	must(t, err)
	s := mustLoad(t, Config{MaxCores: 3, TableSize: 77})
	want := Info{Migration: !kernelBefore(t, 5, 14), MaxCores: 3, TableSize: 77, CPUs: cpus}
	if s.Info() != want {
		t.Errorf("%+v, want %+v", s.Info(), want)
	}
	plain := mustLoad(t, Config{noMigration: true, TableSize: 77, Policy: defaultPolicy(cpus + 1)})
	want = Info{MaxCores: cpus + 1, TableSize: 77, CPUs: cpus}
	if plain.Info() != want {
		t.Errorf("without migration: %+v, want %+v", plain.Info(), want)
	}
	probed, err := Probe()
	if err != nil || probed.Migration != s.Info().Migration {
		t.Errorf("probe: %+v, %v", probed, err)
	}
	biggest := mustLoad(t, Config{MaxCores: MaxCores, TableSize: 1, Policy: defaultPolicy(MaxCores)})
	if p, err := biggest.readPolicy(); err != nil || !equalPolicy(p, defaultPolicy(MaxCores)) {
		t.Errorf("policy %+v, %v", p, err)
	}
}

func equalPolicy(a, b Policy) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func TestClosedSteeringSaysSo(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 2})
	g := listen(t, "127.0.0.1", 1)
	must(t, s.Close())
	must(t, s.Close())
	_, counterErr := s.Counters()
	_, filesErr := s.Files()
	_, coresErr := s.Cores()
	_, _, pinnedErr := s.Pinned(anyPort(g.addr.Addr()))
	for i, err := range []error{
		s.Attach(g.fds[0]), s.Add(0, g.fds[0]), s.Drain(0), s.Remove(0), s.SetPolicy(Policy{}),
		s.Pin(anyPort(g.addr.Addr()), 0), s.Pin(g.addr, 0), s.Unpin(anyPort(g.addr.Addr())), s.Unpin(g.addr),
		counterErr, filesErr, coresErr, pinnedErr,
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}
