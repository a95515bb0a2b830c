package control_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const networkEnv = "RINGMSGR_TEST_NETWORK"

// inOwnNetwork runs the test once more, in a process with a network of its own,
// and returns false there. Everything that the test makes in that network ends
// with the process.
func inOwnNetwork(t *testing.T) (elsewhere bool) {
	t.Helper()
	if os.Getenv(networkEnv) != "" {
		if err := linkUp("lo"); err != nil {
			t.Fatal(err)
		}
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), networkEnv+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // whose end the child would follow
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM) && os.Getenv("CI") != "true":
		t.Skipf("cannot make a network here: %v", err)
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("%v\n%s", err, out)
	}
	return true
}

// network is another one than that of the process.
type network struct {
	work chan func() // for its thread
}

// newNetwork makes one, with a loopback device. It ends with the test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{work: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the network with it
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = linkUp("lo")
		}
		made <- err
		for f := range n.work {
			f()
		}
	}()
	t.Cleanup(func() { close(n.work) })
	if err := <-made; errors.Is(err, unix.EPERM) && os.Getenv("CI") != "true" {
		t.Skipf("cannot make a network here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return n
}

// neighbour is a network that is connected to that of the process by a wire.
type neighbour struct {
	*network
	ours, theirs netip.Addr
}

// newNeighbour makes the network and the wire.
func newNeighbour(t *testing.T) *neighbour {
	t.Helper()
	n := &neighbour{network: newNetwork(t), ours: netip.MustParseAddr("10.77.0.1"), theirs: netip.MustParseAddr("10.77.0.2")}
	ns, err := -1, error(nil)
	n.do(func() { ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ns)
	if err := errors.Join(newWire("wire0", "wire1", ns), setAddr("wire0", n.ours), linkUp("wire0")); err != nil {
		t.Fatal(err)
	}
	n.do(func() { err = errors.Join(setAddr("wire1", n.theirs), linkUp("wire1")) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// do runs f on a thread in the network.
func (n *network) do(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// newWire makes a pair of connected devices, the second one in another network.
func newWire(name, peer string, ns int) error {
	device := func(attrs ...[]byte) []byte {
		return join(append([][]byte{make([]byte, unix.SizeofIfInfomsg)}, attrs...)...)
	}
	const vethPeer = 1 // VETH_INFO_PEER
	return netlink(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, device(
		attr(unix.IFLA_IFNAME, []byte(name+"\x00")),
		attr(unix.IFLA_LINKINFO, join(
			attr(unix.IFLA_INFO_KIND, []byte("veth")),
			attr(unix.IFLA_INFO_DATA, attr(vethPeer, device(
				attr(unix.IFLA_IFNAME, []byte(peer+"\x00")),
				attr(unix.IFLA_NET_NS_FD, binary.NativeEndian.AppendUint32(nil, uint32(ns))),
			))),
		)),
	))
}

// setAddr gives a device an address in a network of 256.
func setAddr(name string, a netip.Addr) error {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	msg := []byte{unix.AF_INET, 24, 0, unix.RT_SCOPE_UNIVERSE}
	msg = binary.NativeEndian.AppendUint32(msg, uint32(dev.Index))
	return netlink(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, join(msg, attr(unix.IFA_LOCAL, a.AsSlice()), attr(unix.IFA_ADDRESS, a.AsSlice())))
}

// linkUp switches a device on.
func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("switch %s on: %w", name, err)
	}
	return nil
}

// attr is one attribute of a netlink message, padded.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// netlink sends one request in the network of the calling thread, and waits for
// its acknowledgement.
func netlink(kind, flags uint16, payload []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(payload)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = append(msg, make([]byte, 8)...) // sequence number and port
	if err := unix.Sendto(fd, append(msg, payload...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var b [4096]byte
	n, _, err := unix.Recvfrom(fd, b[:], 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("netlink answers %x", b[:n])
	}
	if errno := -int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); errno != 0 {
		return fmt.Errorf("netlink request %d: %w", kind, unix.Errno(errno))
	}
	return nil
}
