package bpf_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// A peer that wants core 5 of 8 binds a source port that says so.
func ExampleHintPort() {
	hints := bpf.PortRange{First: 61000, Last: 65535}
	for attempt := range 3 {
		port := bpf.HintPort(hints, 5, 8, attempt)
		fmt.Println(port, port%8)
	}
	// Output:
	// 61005 5
	// 61013 5
	// 61021 5
}

// A server with a listener for each of two cores. It is steered where the
// process may load the program, and says what it cannot have where it may not:
// every connection finds a listener either way.
func ExampleLoad() {
	group, err := listenGroup(2)
	defer closeAll(group)
	if err != nil {
		slog.Error("listen", "err", err)
		return
	}
	steering, err := steer(group)
	switch {
	case errors.Is(err, bpf.ErrPermission), errors.Is(err, bpf.ErrUnsupported):
		slog.Info("the kernel's hash spreads the connections", "err", err) // with the remedy
	case err != nil:
		slog.Error("steer", "err", err)
		return
	default:
		slog.Info("the program spreads the connections", "info", steering.Info())
		defer steering.Close()
	}
	fmt.Println(len(group), "listeners accept") // each on its core
	// Output: 2 listeners accept
}

// listenGroup returns so many listeners on one address.
func listenGroup(cores int) (group []*net.TCPListener, err error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, failed)
	}}
	config.SetMultipathTCP(false) // multipath TCP cannot be steered
	addr := "127.0.0.1:0"
	for range cores {
		l, err := config.Listen(context.Background(), "tcp", addr)
		if err != nil {
			return group, err
		}
		group, addr = append(group, l.(*net.TCPListener)), l.Addr().String()
	}
	return group, nil
}

// steer puts the program to work for the group.
func steer(group []*net.TCPListener) (*bpf.Steering, error) {
	steering, err := bpf.Load(bpf.Config{Policy: bpf.Policy{Rules: bpf.UseTable | bpf.UseCPU, Cores: len(group)}})
	if err != nil {
		return nil, err
	}
	for core, l := range group {
		raw, err := l.SyscallConn()
		if err != nil {
			return nil, errors.Join(err, steering.Close())
		}
		var failed error
		err = raw.Control(func(fd uintptr) {
			if core == 0 {
				failed = steering.Attach(int(fd)) // once, for the whole group
			}
			failed = errors.Join(failed, steering.Add(core, int(fd)))
		})
		if err = errors.Join(err, failed); err != nil {
			return nil, errors.Join(err, steering.Close())
		}
	}
	return steering, nil
}

func closeAll(group []*net.TCPListener) {
	for _, l := range group {
		l.Close()
	}
}
