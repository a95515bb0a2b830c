package control_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestStatisticsAreServed(t *testing.T) {
	msgrtest.CheckLeaks(t)
	m, addr := handoverServer(t, uring.Auto, 2)
	s := newStream(t, uring.Auto, wire.MDS, control.LosslessClient(), addr)
	s.progress(10)
	for _, path := range []string{filepath.Join(t.TempDir(), "stats"), control.StatsSocket(os.Getpid())} {
		srv, err := m.ServeStats(path)
		if err != nil {
			t.Fatal(err)
		}
		if srv.Addr() != path {
			t.Errorf("it serves at %s, want %s", srv.Addr(), path)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		snap, err := control.ReadStats(ctx, path)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if snap.PID != os.Getpid() || snap.Messenger.Name != "osd.0" || len(snap.Messenger.Cores) != 2 || len(snap.Conns) != 1 ||
			snap.Conns[0].State != "ready" || snap.Conns[0].IO.MessagesIn < 10 || time.Since(snap.Time) > time.Minute {
			t.Errorf("%+v", snap)
		}
		// Who says nothing gets JSON as well.
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		var first [1]byte
		if _, err := c.Read(first[:]); err != nil || first[0] != '{' {
			t.Errorf("%q, %v", first, err)
		}
		// It is open when the server ends.
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		_ = c.Close()
		if _, err := control.ReadStats(context.Background(), path); !errors.Is(err, control.ErrStats) {
			t.Errorf("after the end: %v", err)
		}
		var text bytes.Buffer
		if err := snap.WriteText(&text); err != nil || !strings.Contains(text.String(), addr.AddrPort.String()) || !strings.Contains(text.String(), "lossless") && !strings.Contains(text.String(), "stateful-server") {
			t.Errorf("%v: %s", err, text.String())
		}
	}
	s.end()
}

// Whoever comes keeps the path, whenever the one before it goes.
func TestPrivateSocketStaysWhileAnotherGoes(t *testing.T) {
	msgrtest.CheckLeaks(t)
	path := filepath.Join(t.TempDir(), "socket")
	last, err := control.ListenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		gone := make(chan error)
		go func(l net.Listener) { gone <- l.Close() }(last)
		next, err := control.ListenPrivate(path)
		if err := errors.Join(err, <-gone); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		last = next
	}
	if err := last.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// Not for a moment, whatever the umask.
func TestPrivateSocketIsBoundPrivate(t *testing.T) {
	before := unix.Umask(0)
	defer unix.Umask(before)
	path := filepath.Join(t.TempDir(), "socket")
	l, err := control.BindPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("bound: %v, %v", st.Mode(), err)
	}
}

func TestPrivateSocketTakesThePlaceOfAnother(t *testing.T) {
	msgrtest.CheckLeaks(t)
	path := filepath.Join(t.TempDir(), "socket")
	first, err := control.ListenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := control.ListenPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("behind the end of the first: %v, %v", st, err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("behind the end of both: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := control.ListenPrivate(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("in the place of a file: %v, %v", l, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A message for which Send returned nil arrives, also if it was sent while the
// hand-over began.
func TestSendDuringAHandOverIsKeptOrRefused(t *testing.T) {
	msgrtest.CheckLeaks(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var mu sync.Mutex
	seen := make(map[uint64]bool) // guarded by mu
	arrived := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return uint64(len(seen))
	}
	policy := control.LosslessPeer()
	cfg := serverConfig(uring.Auto, 1)
	cfg.Name.ID, cfg.Default = "5", &policy
	peer, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer end(t, peer)
	if err := peer.Start(&control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[m.TID] = true
		return true
	}}); err != nil {
		t.Fatal(err)
	}
	addrs, err := peer.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	// The bound: the sender is never far ahead of the peer, however fast it is.
	bounded := serverConfig(uring.Auto, 1)
	bounded.QueueMessages = 1000
	m, _ := serveEcho(t, bounded)
	var sent uint64
	for range 5 {
		c, err := m.Connect(addrs[0], wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		kept := make(chan uint64)
		go func(n uint64) {
			for {
				msg := control.NewMessage(1, nil, nil)
				msg.TID = n
				switch err := c.Send(msg); {
				case err == nil:
					n++
				case errors.Is(err, control.ErrQueueFull):
					runtime.Gosched()
				case errors.Is(err, control.ErrHandedOver):
					kept <- n
					return
				default:
					t.Error(err)
					kept <- n
					return
				}
			}
		}(sent)
		eventually(t, ctx, "some that are on their way", func() bool { return arrived() > sent })
		next := succeed(t, ctx, m, bounded)
		defer end(t, next)
		sent, m = <-kept, next
	}
	eventually(t, ctx, "all that were sent", func() bool { return arrived() == sent })
}
