package control_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// While the process is out of descriptors, who connects waits, what is
// connected goes on, the log says so once; when descriptors come back, so do
// the connections. It never gives up.
// Matrix: SH-13, RL-05
func TestAcceptRecoversWhenDescriptorsComeBack(t *testing.T) {
	for _, backend := range engines {
		t.Run(string(backend), func(t *testing.T) {
			ctx := deadline(t)
			// A ring takes note of the limit when an accept is armed.
			exhaust := lowerLimit(t)
			var log lockedLog
			server, err := control.New(control.Config{
				Name:  wire.EntityName{Type: wire.OSD, ID: "1"},
				Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
				// The messenger says what it does with each; this is about the rest.
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
			})
			must(t, err)
			t.Cleanup(func() { end(t, server) })
			must(t, server.Start(echoer()))
			host := ownHost()
			addrs, err := server.Bind(v2(host, 6800))
			must(t, err)
			client := nodeOf(t, variant{backend: backend}, "client.2", "LC", 2)
			conn, err := client.Connect(addrs[0], wire.OSD)
			must(t, err)
			send(t, conn, 1)
			receives(t, ctx, client, 1001)

			const late = 5
			var sockets [late]int
			for i := range sockets {
				sockets[i], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				must(t, err)
			}
			restore := exhaust()
			for _, s := range sockets {
				if err := unix.Connect(s, &unix.SockaddrInet4{Port: 6800, Addr: host.As4()}); err != nil {
					t.Error(err)
				}
			}
			stats := func() dataplane.CoreStats {
				st, err := server.Stats()
				must(t, err)
				return st.Cores[0]
			}
			if err := msgrtest.Until(ctx, func() bool { return stats().AcceptErrors >= 3 }); err != nil {
				t.Fatalf("no third attempt to accept: %+v\n%s", stats(), log.String())
			}
			send(t, conn, 2)
			receives(t, ctx, client, 1001, 1002)
			if n := stats().Accepts; n != 1 {
				t.Errorf("%d accepted", n)
			}
			restore()
			for _, s := range sockets {
				f := os.NewFile(uintptr(s), "late")
				if err := unix.SetNonblock(s, false); err != nil {
					t.Error(err)
				}
				banner := make([]byte, 26)
				if _, err := io.ReadFull(f, banner); err != nil || !bytes.HasPrefix(banner, []byte("ceph v2\n")) {
					t.Errorf("banner %q, %v", banner, err)
				}
				_ = f.Close()
			}
			text := log.String()
			if strings.Count(text, "not accepted") != 1 || strings.Count(text, "accepted again") != 1 {
				t.Errorf("the log says:\n%s", text)
			}
		})
	}
}

// lockedLog is what was logged, by any goroutine.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// lowerLimit lowers the limit on descriptors until the end of the test. exhaust
// leaves none of them free until restore.
func lowerLimit(t *testing.T) (exhaust func() (restore func())) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(old.Cur, 512), Max: old.Max}))
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
	return func() func() {
		var fds []int
		for {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				break
			}
			fds = append(fds, fd)
		}
		restore := sync.OnceFunc(func() {
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
		})
		t.Cleanup(restore)
		return restore
	}
}

func startMessenger(t *testing.T, cfg control.Config) *control.Messenger {
	t.Helper()
	m, err := control.New(cfg)
	must(t, err)
	t.Cleanup(func() { end(t, m) })
	must(t, m.Start())
	return m
}
