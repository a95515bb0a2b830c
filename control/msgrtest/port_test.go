package msgrtest_test

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

func TestAReservedPortRefusesUntilTheTestListensThere(t *testing.T) {
	at := msgrtest.ReservePort(t).String()
	for range 2 {
		if c, err := net.Dial("tcp4", at); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("%v, %v", c, err)
		}
		l, err := net.Listen("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		_ = l.Close()
	}
}

// The peers of a node that is shut down do not come to another program's server.
func TestANodeKeepsItsPortUntilTheTestEnds(t *testing.T) {
	n := nodetest.Start(t, nodetest.NodeConfig{})
	if err := n.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// The kernel does not choose a port that this one cannot have.
	at := n.Addr.AddrPort
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("bound by somebody else: %v", err)
	}
}
