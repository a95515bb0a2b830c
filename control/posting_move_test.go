package control

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// A connection may leave its core while a posting is on the way there: only the core that
// owns the connection may arm the posting.
func TestAPostingFollowsAConnectionThatHasLeftItsCore(t *testing.T) {
	name, err := wire.ParseEntityName("client.1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(Config{Name: name, Number: 1, Plane: loop.Config{Cores: 2}, Timeouts: Timeouts{Handshake: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Shutdown(context.Background()) }()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	to := wire.Addr{Type: wire.AddrMsgr2, Nonce: 1, AddrPort: FullListener(t)}
	c, err := m.Connect(to, wire.OSD)
	if err != nil {
		t.Fatal(err)
	}
	// The session waits for its socket and takes no step: the test alone tells the handler.
	h, busy := c.s.Handler(), make(chan struct{})
	from := h.Core()
	if err := from.Do(func(*loop.Core) { <-busy }); err != nil {
		t.Fatal(err)
	}
	came := make(chan bool, 1)
	p := &Posting{TID: 1, Buffer: make([]byte, 10), Done: func(*Posting, error) {}}
	p.task.Run = func(at *loop.Core) {
		p.arrive(at)
		came <- at != from && at == h.Core() && !p.pending
	}
	h.Move(m.Core(1-from.ID()), dataplane.MoveCause{}, func() {})
	if err := c.PostBuffer(p); err != nil {
		t.Fatal(err)
	}
	close(busy)
	if !<-came {
		t.Error("a core that does not own the connection armed the posting")
	}
}

// FullListener is the address of a listener whose queue is full: to connect there ends with
// no answer.
func FullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
	for {
		conn, err := net.DialTimeout("tcp", at.String(), 50*time.Millisecond)
		if err != nil {
			return at
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}
