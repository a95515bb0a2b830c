package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// successorEnv holds the address that the second process of the hand-over serves.
const successorEnv = "RINGMSGR_TEST_SUCCESSOR"

func files(t testing.TB, s *Steering) []*os.File {
	t.Helper()
	f, err := s.Files()
	must(t, err)
	t.Cleanup(func() {
		for _, f := range f {
			f.Close()
		}
	})
	return f
}

// A new process, without any capability, takes the slots over while clients
// connect; then the old listeners close.
func TestHandOverToAnotherProcess(t *testing.T) {
	if addr := os.Getenv(successorEnv); addr != "" {
		inherit(t, addr)
		return
	}
	s := mustLoad(t, Config{MaxCores: 2, Policy: defaultPolicy(2)})
	needMigration(t, s)
	if kernelBefore(t, 5, 19) {
		t.Skip("before Linux 5.19 the successor needs a capability")
	}
	old, addr := serveGroup(t, s, 2, func(int) byte { return 'o' })
	c := hammer(t, addr, "127.81.9.1", "127.81.9.2")
	c.await(t, 50)

	successor := exec.Command(os.Args[0], "-test.run=^TestHandOverToAnotherProcess$")
	successor.Env = append(os.Environ(), successorEnv+"="+addr)
	successor.ExtraFiles = files(t, s)
	successor.Stderr = os.Stderr
	stdin, err := successor.StdinPipe()
	must(t, err)
	stdout, err := successor.StdoutPipe()
	must(t, err)
	must(t, successor.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Errorf("the successor says %q, %v", line, err)
	}
	c.await(t, 50)
	for _, l := range old {
		l.stop()
	}
	before := c.answers['o'].Load()
	c.await(t, 50)
	c.check(t, 0)
	must(t, s.Close()) // the successor has its own descriptors
	must(t, stdin.Close())
	if err := successor.Wait(); err != nil {
		t.Errorf("successor: %v", err)
	}
	if c.answers['n'].Load() == 0 || c.answers['o'].Load() > before+2 {
		t.Errorf("old process answered %d, new one %d", c.answers['o'].Load(), c.answers['n'].Load())
	}
}

// inherit is the second process. It serves until its input ends.
func inherit(t *testing.T, addr string) {
	runtime.LockOSThread() // the thread without capabilities
	must(t, limitCapabilities(0))
	var given []*os.File
	for i := range numFiles {
		given = append(given, os.NewFile(uintptr(3+i), fileNames[i]))
	}
	s, err := FromFiles(given)
	must(t, err)
	for core := range 2 {
		serve(t, addr, 'n').with(t, func(fd int) error { return s.Add(core, fd) })
	}
	fmt.Println("ready")
	if _, err := io.ReadAll(os.Stdin); err != nil {
		t.Error(err)
	}
	if c := snapshot(t, s).Total(); c.CPU.Selected == 0 {
		t.Error("counters are not shared")
	}
	must(t, s.Close())
}

func TestASuccessorSharesEverything(t *testing.T) {
	for _, plain := range []bool{false, true} {
		s := mustLoad(t, Config{MaxCores: 3, TableSize: 99, Policy: defaultPolicy(2), noMigration: plain})
		g := listen(t, "127.0.0.1", 2)
		g.steer(t, s)
		ip := netip.MustParseAddr("127.81.9.3")
		must(t, s.Pin(anyPort(ip), 1))
		successor, err := FromFiles(files(t, s))
		must(t, err)
		must(t, s.Close())
		defer successor.Close()
		if successor.Info() != s.Info() {
			t.Errorf("%+v, want %+v", successor.Info(), s.Info())
		}
		if p, err := successor.readPolicy(); err != nil || !equalPolicy(p, defaultPolicy(2)) {
			t.Errorf("policy %+v, %v", p, err)
		}
		wantCores(t, successor, 0, 1)
		if core := reach(t, g, ip.String(), -1); core != 1 {
			t.Errorf("core %d", core)
		}
		if c := snapshot(t, successor); c.Cores[1].Addr.Selected != 1 {
			t.Errorf("counters\n%v", c)
		}
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 3})
	good := files(t, s)
	for i := range good {
		for j := range i {
			mixed := append([]*os.File(nil), good...)
			mixed[i], mixed[j] = mixed[j], mixed[i]
			if successor, err := FromFiles(mixed); !errors.Is(err, errFiles) {
				t.Fatalf("%d and %d swapped: %v, %v", i, j, successor, err)
			}
		}
	}
	for _, cfg := range []Config{{MaxCores: 4, TableSize: 7}, {MaxCores: 3}} {
		other := files(t, mustLoad(t, cfg))
		for i := range good {
			mixed := append([]*os.File(nil), good...)
			mixed[i] = other[i]
			if successor, err := FromFiles(mixed); !errors.Is(err, errFiles) {
				t.Fatalf("file %d of another steering: %v, %v", i, successor, err)
			}
		}
	}
	null, err := os.Open("/dev/null")
	must(t, err)
	defer null.Close()
	if _, err := FromFiles([]*os.File{null, null, null, null, null, null}); !errors.Is(err, errFiles) {
		t.Error(err)
	}
	if _, err := FromFiles(good[:5]); !errors.Is(err, errFiles) {
		t.Error(err)
	}
	closed := files(t, s)
	must(t, closed[2].Close())
	if _, err := FromFiles(closed); !errors.Is(err, errFiles) {
		t.Error(err)
	}
}

// Versions whose maps mean something else have other names for them.
func TestRenamedMapIsRefused(t *testing.T) {
	s := mustLoad(t, Config{MaxCores: 3})
	info, err := s.maps.Policies.Info()
	must(t, err)
	id, _ := info.ID()
	spec, err := loadSteer()
	must(t, err)
	must(t, sameMap(spec.Maps[steerMapPolicies], s.maps.Policies, []ebpf.MapID{id}))
	spec.Maps[steerMapPolicies].Name = "policies_v0"
	if sameMap(spec.Maps[steerMapPolicies], s.maps.Policies, []ebpf.MapID{id}) == nil {
		t.Error("another name was taken")
	}
}

func TestNoDescriptorLeaks(t *testing.T) {
	mustLoad(t, Config{})
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector closes, too
	cycle := func() {
		s, err := Load(Config{MaxCores: 2, TableSize: 16})
		must(t, err)
		given, err := s.Files()
		must(t, err)
		successor, err := FromFiles(given)
		must(t, err)
		for _, other := range []*os.File{null, given[4]} { // no map, and another one
			if _, err := FromFiles(append(given[:5:5], other)); err == nil {
				t.Fatal("taken")
			}
		}
		for _, f := range given {
			must(t, f.Close())
		}
		must(t, errors.Join(s.Close(), successor.Close()))
	}
	cycle() // whatever is opened once
	before := drivertest.Descriptors(t)
	for range 3 {
		cycle()
	}
	if after := drivertest.Descriptors(t); after != before {
		t.Errorf("%d descriptors open, were %d", after, before)
	}
}
