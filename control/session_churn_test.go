package control_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Peers that come, do one thing, and go, as fast as they can.

// churnRounds is how often.
func churnRounds(long int) int {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return long
	}
	return 150
}

// heapBytes is what is in use once the collector has been there.
func heapBytes() int64 {
	for range 2 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever a peer does before it goes, nothing of it stays: no
// connection, no goroutine, no descriptor, no place among the half-open ones, and no
// memory that grows with the number of peers. Honest ones go on meanwhile.
// Matrix: SE-43, SH-16, HI-15, HI-31, RL-08, RL-12
func TestPeersThatComeAndGoAtOnceLeaveNothing(t *testing.T) {
	hello := nodetest.Read(frame.TagHello)
	for _, ending := range []struct {
		name string
		do   func(p *msgrtest.Peer)
	}{
		{"ident", func(p *msgrtest.Peer) {
			p.Handshake()
			p.SendPayload(frame.TagClientIdent, p.ClientIdent(7, 1))
		}},
		{"no banner", func(p *msgrtest.Peer) { p.WriteRaw([]byte("GET / HTTP/1.1\r\n")) }},
		{"half a handshake", func(p *msgrtest.Peer) { p.HandshakeUntil(hello) }},
		{"a frame out of place", func(p *msgrtest.Peer) {
			p.Handshake()
			p.Send(frame.TagHello, make([]byte, 20))
		}},
		{"a target that is not there", func(p *msgrtest.Peer) {
			p.Handshake()
			ci := p.ClientIdent(7, 1)
			ci.TargetAddr = ci.TargetAddr.WithNonce(12345)
			p.SendPayload(frame.TagClientIdent, ci)
		}},
		{"a bad frame of a session", func(p *msgrtest.Peer) {
			p.Establish(7, 1)
			p.WriteRaw(make([]byte, 64))
		}},
	} {
		t.Run(ending.name, func(t *testing.T) {
			nodetest.CheckLeaks(t)
			for _, v := range newest {
				t.Run(v.String(), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), 40*sessionTime)
					defer cancel()
					server, addr := plainServer(t, v, func(c *control.Config) { c.Door.FailureRate = -1 })
					client := plainClient(t, v)
					conn := connect(t, client, addr, wire.OSD)
					must(t, conn.WaitReady(ctx))
					visit := func(i int) {
						p := msgrtest.DialPeer(ctx, msgrtest.PeerConfig{
							Name: wire.EntityName{Type: wire.Client, ID: "x"}, Number: int64(i), Addr: wire.Addr{Type: wire.AddrAny, Nonce: uint32(i + 1), AddrPort: loopback(0)}, Rev0: v.rev0,
						}, addr)
						ending.do(p)
						if i%2 == 0 {
							p.Reset()
						} else {
							p.Close()
						}
					}
					gone := func() {
						eventually(t, ctx, "the last of them to be gone", func() bool {
							st, err := server.Stats()
							return err == nil && st.Open == 1 && st.HalfOpen == 0
						})
					}
					rounds := churnRounds(84_000) // times six endings and two engines: a million
					for i := range rounds / 3 {
						visit(i)
					}
					gone()
					before := heapBytes()
					for i := range rounds {
						visit(i)
					}
					gone()
					if grown := heapBytes() - before; grown > 1<<20+int64(rounds)*16 {
						t.Errorf("%d bytes more after %d peers", grown, rounds)
					}
					if c := conn.State(); c != control.StateReady {
						t.Errorf("the honest connection is %v", c)
					}
				})
			}
		})
	}
}

// The data phase needs no goroutine of a connection.
// Matrix: RL-10
func TestEstablishedConnectionsHaveNoGoroutines(t *testing.T) {
	for _, v := range newest {
		t.Run(v.String(), func(t *testing.T) {
			ctx := deadline(t)
			const n = 200
			server, addr := plainServer(t, v, func(c *control.Config) { c.Door.FailureRate = -1 })
			client := plainClient(t, v)
			connect := func(n int) { openIdle(t, ctx, server, client, addr, n) }
			connect(1)
			var before int
			eventually(t, ctx, "the first handshake to be gone", func() bool {
				now := runtime.NumGoroutine()
				same := now == before
				before = now
				return same
			})
			connect(n)
			eventually(t, ctx, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

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
			var log logText
			server := startMessenger(t, control.Config{
				Name:  wire.EntityName{Type: wire.OSD, ID: "1"},
				Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}},
				// The messenger says what it does with each; this is about the rest.
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
			}, echoer())
			host := ownHost()
			addrs := bind(t, server, v2(host, 6800))
			client := nodeOf(t, variant{backend: backend}, "client.2", "LC", 2)
			conn := connect(t, client, addrs[0], wire.OSD)
			send(t, conn, 1)
			receives(t, ctx, client, 1001)

			const late = 5
			var sockets [late]int
			for i := range sockets {
				var err error
				sockets[i], err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				must(t, err)
			}
			restore := exhaust()
			for _, s := range sockets {
				check(t, unix.Connect(s, &unix.SockaddrInet4{Port: 6800, Addr: host.As4()}))
			}
			stats := func() dataplane.CoreStats {
				st := statsOf(t, server)
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
				check(t, unix.SetNonblock(s, false))
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

// lowerLimit lowers the limit on descriptors until the end of the test. exhaust
// leaves none of them free until restore.
func lowerLimit(t *testing.T) (exhaust func() (restore func())) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(old.Cur, 512), Max: old.Max}))
	t.Cleanup(func() {
		check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
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
