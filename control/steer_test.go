package control_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// steerPatience bounds what must happen.
const steerPatience = 60 * time.Second

// anyHandshake is no bound on a handshake. An attempt that ends by its bound dials again: from an
// ordinary port, which the kernel's hash brings to any core, or from a hinted one, which counts.
const anyHandshake = time.Hour

// steerCores is the number of cores of the steered servers, whatever the
// number of CPUs.
const steerCores = 4

// longSteering says that the tests run in their full size.
func longSteering() bool { return os.Getenv("RINGMSGR_LONG") != "" }

// needSteering skips the test where the process may not load programs, and
// fails it there if CI=true.
func needSteering(t testing.TB) {
	t.Helper()
	if _, err := bpf.Probe(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI must be able to load programs: %v", err)
		}
		t.Skipf("cannot load programs here: %v", err)
	}
}

// steered is a bound messenger with several cores.
func steered(t testing.TB, mode control.Steer, change func(*control.Config)) (*control.Messenger, netip.AddrPort) {
	t.Helper()
	cfg := control.Config{
		Name:  wire.EntityName{Type: wire.OSD, ID: "0"},
		Steer: mode, Door: control.Door{HalfOpen: 1 << 16},
		Plane: loop.Config{Cores: steerCores},
	}
	if change != nil {
		change(&cfg)
	}
	m := startMessenger(t, cfg, echoAll())
	return m, listenOn(t, m).AddrPort
}

// knock connects from a source, 0 leaving the port to the kernel, and hangs up.
func knock(t testing.TB, from, to netip.AddrPort) {
	t.Helper()
	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(from),
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			if e := raw.Control(func(fd uintptr) {
				err = errors.Join(
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
			}); e != nil {
				return e
			}
			return err
		},
	}
	c, err := d.Dial("tcp", to.String())
	must(t, err)
	// With the banner read nothing is under way to a socket that is gone: a
	// stray segment would be asked about once more, and counted.
	must(t, onlyError(io.ReadFull(c, make([]byte, 26))))
	c.(*net.TCPConn).SetLinger(0) // no TIME_WAIT: the source is free again
	c.Close()
}

// source is a loopback address that no other connection of the test has.
func source(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i&0xff | 1<<7)})
}

// arrived waits until the server has accepted so many sockets, and returns how
// many each core got.
func arrived(t testing.TB, m *control.Messenger, total int) (perCore []int, st control.Stats) {
	t.Helper()
	for end := time.Now().Add(steerPatience); ; {
		st = statsOf(t, m)
		perCore = nil
		sum := 0
		for _, c := range st.Cores {
			perCore = append(perCore, int(c.Accepts))
			sum += int(c.Accepts)
		}
		if sum >= total {
			return perCore, st
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d connections accepted: %v", sum, total, perCore)
		}
	}
}

// connections is how many the steering tests make.
func connections() int {
	if longSteering() {
		return 10000
	}
	return 400
}

func expectCores(t testing.TB, got, want []int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("cores accepted %v, want %v", got, want)
	}
}

// expectSelected checks what the program counted for each core: as many
// connections selected as want has, and no misses.
func expectSelected(t testing.TB, counters bpf.Counters, want []int, selected func(bpf.CoreCounters) uint64) {
	t.Helper()
	for core, c := range counters.Cores {
		if int(selected(c)) != want[core] || c.Missed() != 0 {
			t.Errorf("counters of core %d: %+v, want %d", core, c, want[core])
		}
	}
}

// The rules that select a core.
func byAddr(c bpf.CoreCounters) uint64 { return c.Addr.Selected }
func byHint(c bpf.CoreCounters) uint64 { return c.Hint.Selected }

func TestTheTablePutsEveryConnectionWhereItBelongs(t *testing.T) {
	needSteering(t)
	const hosts = 100
	m, at := steered(t, control.SteerTable, nil)
	for i := range hosts {
		must(t, m.PinPeer(netip.AddrPortFrom(source(i), 0), i*7%steerCores))
	}
	n := connections()
	want := make([]int, steerCores)
	for i := range n {
		knock(t, netip.AddrPortFrom(source(i%hosts), 0), at)
		want[i%hosts*7%steerCores]++
	}
	got, st := arrived(t, m, n)
	expectCores(t, got, want)
	counters := st.Steering.Groups[0].Counters
	expectSelected(t, counters, want, byAddr)
	if counters.Hash != 0 {
		t.Errorf("%d connections were left to the hash", counters.Hash)
	}

	// The entry for a port goes before the one for the address, and both end.
	from := netip.AddrPortFrom(source(0), 40123)
	must(t, m.PinPeer(from, 3))
	knock(t, from, at)
	want[3]++
	got, _ = arrived(t, m, n+1)
	expectCores(t, got, want)
	must(t, errors.Join(m.UnpinPeer(from), m.UnpinPeer(netip.AddrPortFrom(source(0), 0))))
	knock(t, from, at)
	_, st = arrived(t, m, n+2)
	if hash := st.Steering.Groups[0].Counters.Hash; hash != 1 {
		t.Errorf("%d connections by hash, want the one that is not pinned any more", hash)
	}
}

func TestAutoSteersByTableAndHintAndByCPUIfPinned(t *testing.T) {
	needSteering(t)
	for _, pin := range []bool{false, true} {
		m, _ := steered(t, "", func(c *control.Config) { c.Plane.Pin = pin })
		st := statsOf(t, m).Steering
		want := "[table_addrport table_addr hint]"
		if pin {
			want = "[table_addrport table_addr hint cpu]"
		}
		if !st.Active || fmt.Sprint(st.Rules) != want || st.Mode != control.SteerAuto || st.Why != "" {
			t.Errorf("pinned %v: %+v", pin, st)
		}
	}
}

const unprivilegedEnv = "RINGMSGR_TEST_UNPRIVILEGED"

// The test runs itself once more, in a process that cannot get the capability.
func TestWithoutThePrivilegeEverythingWorksAndStatsSayWhy(t *testing.T) {
	if _, err := bpf.Probe(); err == nil && os.Getenv(unprivilegedEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), unprivilegedEnv+"=1")
		out, err := runPrepared(cmd, func() error { // the bounding set is a thread's
			return errors.Join(unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_BPF, 0, 0, 0), unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0))
		})
		if err != nil || !strings.Contains(out, "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if _, err := bpf.Probe(); !errors.Is(err, bpf.ErrPermission) {
		t.Fatalf("this process should lack the privilege: %v", err)
	}
	log := &logText{}
	m := startMessenger(t, control.Config{
		Name: osd("0"), Plane: loop.Config{Cores: steerCores}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}, echoAll())
	to := listenOn(t, m)
	for i := range 8 {
		oneClient(t, i, to).exchange(1)
	}
	if got, st := arrived(t, m, 8); len(got) != steerCores || st.Counters.Hints.Given != 0 {
		t.Errorf("cores %v, hints %+v that lead nowhere", got, st.Counters.Hints)
	}
	if n := log.count("connections are not steered"); n != 1 {
		t.Errorf("logged %d times that nothing is steered", n)
	}
	if st := statsOf(t, m).Steering; st.Active || len(st.Groups) != 0 || st.Missing != "CAP_BPF" || st.Remedy == "" || st.Why == "" {
		t.Errorf("steering %+v", st)
	}
}
