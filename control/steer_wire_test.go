package control_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Over a wire between two networks, the SYN is taken by the CPU that received
// it: that of the client that is pinned there, as the wire has no queues. The
// server's CPU has no say.
func TestOverAWireTheCPUPutsEveryConnectionOnTheCoreOfItsCPU(t *testing.T) {
	needSteering(t)
	if inOwnNetwork(t) {
		return
	}
	cpus, err := uring.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	n := newNeighbour(t)
	cfg := control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Steer: control.SteerCPU, HalfOpen: 1 << 16, Plane: dataplane.Config{Cores: steerCores},
	}
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	endWithTest(t, m)
	if err := m.Start(&control.Dispatcher{Fast: echoBack}); err != nil {
		t.Fatal(err)
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(n.ours, 0)})
	if err != nil {
		t.Fatal(err)
	}
	at := addrs[0].AddrPort
	want := make([]int, steerCores)
	total := connections()
	for i := range total + 1 {
		cpu := i % len(cpus)
		n.do(func() { err = knockOn(cpus[cpu], at) })
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			// The answer to the first one's question for the hardware address
			// may have been taken, and the SYN behind it sent, by another CPU.
			first, _ := arrived(t, m, 1)
			copy(want, first)
			continue
		}
		want[cpu%steerCores]++
	}
	got, st := arrived(t, m, total+1)
	expectCores(t, got, want)
	counters := st.Steering.Groups[0].Counters
	expectSelected(t, counters, want, byCPU)
	if counters.Hash != 0 {
		t.Errorf("%d connections were left to the hash", counters.Hash)
	}
}

// knockOn connects from a CPU, by the calling thread and in its network, and
// hangs up. The thread stays on the CPU.
func knockOn(cpu int, to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "knock")
	defer f.Close()
	var only unix.CPUSet
	only.Set(cpu)
	if err := errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}), // no TIME_WAIT: the port is free again
		unix.SchedSetaffinity(0, &only),
		unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}),
	); err != nil {
		return fmt.Errorf("connect to %v: %w", to, err)
	}
	// With the banner read nothing is under way to a socket that is gone.
	_, err = io.ReadFull(f, make([]byte, 26))
	return err
}
