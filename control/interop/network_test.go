package interop_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// atATime is how many tests run together.
const atATime = "4"

// ownNetwork is set in the process that runs the tests.
const ownNetwork = "RINGMSGR_INTEROP_NETWORK"

// TestMain runs the tests in a network namespace that they have for themselves: no other process takes a port there.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if wanted() && os.Getenv(ownNetwork) == "" {
		os.Exit(runInOwnNetwork())
	}
	var err error
	if wanted() {
		err = raiseLoopback()
	}
	if err == nil && !given { // most of the time they wait for daemons
		err = flag.Set("test.parallel", atATime)
	}
	if err == nil {
		programs, err = os.MkdirTemp("", "ringmsgr-programs-")
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(programs) // in the directory for such
	os.Exit(code)
}

// runInOwnNetwork runs this program again in a new network namespace, and returns its exit status. The kernel kills that process if this
// one dies.
func runInOwnNetwork() int {
	runtime.LockOSThread() // the thread that forks has to live as long as the process
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), ownNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintf(os.Stderr, "interop tests are asked for, but cannot have a network of their own: %v (run them as root, or allow user namespaces)\n", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// raiseLoopback has the network namespace carry packets.
func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
	}
	return err
}

// portRange are ports in a row.
type portRange struct{ first, last uint16 }

// Ports are below the ephemeral ones, so that no outgoing connection takes one before its daemon does.
const firstPort, endOfPorts = 10_000, 32_000

var ports = struct {
	sync.Mutex
	next int
}{next: firstPort}

// An OSD binds eight ports. After a restart it takes spare ports while its old ports are not free.
const portsPerOSD, sparePorts = 8, 24

// takePorts hands out ports on loopback, each once until all are. No two clusters share ports: a client of one would dial the OSD of the
// other where its own was killed.
func takePorts(n int) portRange {
	ports.Lock()
	defer ports.Unlock()
	if ports.next+n > endOfPorts {
		ports.next = firstPort
	}
	ports.next += n
	return portRange{uint16(ports.next - n), uint16(ports.next - 1)}
}

// freePorts are addresses with such ports.
func freePorts(n int) (addrs []netip.AddrPort) {
	r := takePorts(n)
	for port := r.first; port <= r.last; port++ {
		addrs = append(addrs, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	}
	return addrs
}
