package bpf_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// One listener per core on the same address, and a peer that belongs to core 1.
func Example() {
	const cores = 2
	peer := netip.MustParseAddr("127.81.11.1")

	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
	}}
	config.SetMultipathTCP(false) // multipath TCP cannot be steered
	var listeners [cores]net.Listener
	addr := "127.0.0.1:0"
	for core := range listeners {
		l, err := config.Listen(context.Background(), "tcp", addr)
		if err != nil {
			slog.Error("listen", "err", err)
			return
		}
		defer l.Close()
		listeners[core], addr = l, l.Addr().String()
	}

	steering, err := bpf.Load(bpf.Config{Policy: bpf.DefaultPolicy(cores)})
	if errors.Is(err, bpf.ErrPermission) || errors.Is(err, bpf.ErrUnsupported) {
		slog.Warn("the kernel's hash spreads the connections", "err", err)
		return
	} else if err != nil {
		slog.Error("load", "err", err)
		return
	}
	defer steering.Close()
	for core, l := range listeners {
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			slog.Error("listener", "err", err)
			return
		}
		raw.Control(func(fd uintptr) {
			if core == 0 {
				err = steering.Attach(int(fd)) // once, for the whole group
			}
			err = errors.Join(err, steering.Add(core, int(fd)))
		})
		if err != nil {
			slog.Error("steer", "err", err)
			return
		}
	}
	if err := steering.Pin(peer, 1); err != nil {
		slog.Error("pin", "err", err)
		return
	}

	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: peer.AsSlice()}}
	client, err := dialer.Dial("tcp", addr)
	if err != nil {
		slog.Error("dial", "err", err)
		return
	}
	defer client.Close()
	conn, err := listeners[1].Accept()
	if err != nil {
		slog.Error("accept", "err", err)
		return
	}
	defer conn.Close()
	counters, err := steering.Counters()
	if err != nil {
		slog.Error("counters", "err", err)
		return
	}
	fmt.Println("core 1 by table:", counters.Cores[1].Addr.Selected)
}

// The example needs a capability, so go test does not run it by itself.
func TestExample(t *testing.T) {
	if _, err := bpf.Probe(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	stdout := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	os.Stdout = w
	Example()
	os.Stdout = stdout
	w.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "core 1 by table: 1\n" {
		t.Errorf("printed %q, %v", got, err)
	}
}

// A peer that wants core 5 of 8 binds a source port that says so.
func ExampleHintPort() {
	hints, err := bpf.ProposeHintRange(8, bpf.PortRange{First: 32768, Last: 60999})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hints)
	for attempt := range 3 {
		port := bpf.HintPort(hints, 5, 8, attempt)
		fmt.Println(port, port%8)
	}
	// Output:
	// 61000-65535
	// 61005 5
	// 61013 5
	// 61021 5
}

// The model tells where a connection would go, without a kernel.
func ExampleModel_Decide() {
	m := bpf.Model{
		Policy: bpf.Policy{Rules: bpf.UseTable | bpf.UseCPU, Cores: 4},
		Addr:   map[netip.Addr]int{netip.MustParseAddr("192.0.2.7"): 2},
		Live:   []int{0, 1, 3}, // core 2 is drained
	}
	d := m.Decide(bpf.Connection{Peer: netip.MustParseAddrPort("192.0.2.7:50000"), CPU: 1})
	fmt.Println(d.Rule, d.Core, d.Missed)
	// Output: cpu 1 [{table_addr 2}]
}
