//go:build !race

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// The machine disturbs a process, and a process the machine.

// spawnServe starts a serve in a process of its own, and waits until it is ready.
func spawnServe(t testing.TB, flags string) (server *clitest.Process, at wire.Addr) {
	t.Helper()
	server = clitest.Start(t, strings.Fields("serve --json --log-level off --drain 1m "+flags)...)
	return server, decode[listening](t, result{stdout: server.Line() + "\n"}).Listening.Front()
}

func spawnSend(t testing.TB, to wire.Addr, flags string) *clitest.Process {
	t.Helper()
	return clitest.Start(t, strings.Fields("send --json --log-level off "+flags+" "+to.String())...)
}

// reported is the result of a send, which must succeed.
func reported(t testing.TB, client *clitest.Process) sent {
	t.Helper()
	r := decode[sent](t, result{stdout: client.Line() + "\n"})
	if client.Want(cli.OK); r.Error != "" {
		t.Errorf("send says %+v", r)
	}
	return r
}

// awaitStopped waits until a process is stopped by a signal, or is not.
func awaitStopped(t *testing.T, pid int, stopped bool) {
	t.Helper()
	err := msgrtest.Until(t.Context(), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, found := bytes.Cut(stat, []byte(") "))
		return err == nil && found && (state[0] == 'T') == stopped
	})
	clitest.Must(t, err)
}

// A process that is stopped and continued, again and again, loses no message, and serves
// clients that connect meanwhile.
// Matrix: IO-19
func TestAServerThatIsStoppedNowAndThenServesOn(t *testing.T) {
	for _, backend := range []uring.Backend{uring.Auto, uring.Epoll} {
		t.Run(string(backend), func(t *testing.T) {
			server, at := spawnServe(t, "--policy stateful-server --cores 2 --backend "+string(backend))
			const flags = "--policy lossless-client --messages 20000 --conns 4 --size 2KiB --keepalive 100ms"
			client := spawnSend(t, at, flags)
			pid := server.PID()
			for range 20 {
				server.Signal(syscall.SIGSTOP)
				awaitStopped(t, pid, true)
				c, err := net.Dial("tcp", at.AddrPort.String())
				clitest.Must(t, err)
				server.Signal(syscall.SIGCONT)
				awaitStopped(t, pid, false)
				banner := make([]byte, 8)
				if _, err := c.Read(banner); err != nil || !bytes.HasPrefix(banner, []byte("ceph v2")) {
					t.Errorf("%q, %v", banner, err)
				}
				_ = c.Close()
			}
			report := reported(t, client)
			if report.Verified != 20000 || report.Losses+report.Duplicates+report.Corrupt != 0 {
				t.Errorf("send says %+v", report)
			}
		})
	}
}

// A terminal that is closed sends SIGHUP more than once. A process that is to outlive its terminal, as by nohup, goes on.
func TestAServerEndsInGoodOrderWhenItsTerminalIsClosed(t *testing.T) {
	defer signal.Reset(syscall.SIGHUP)
	for _, outlives := range []bool{true, false} {
		if signal.Ignore(syscall.SIGHUP); !outlives { // which the program inherits
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		}
		server, at := spawnServe(t, "")
		for began := time.Now(); time.Since(began) < 200*time.Millisecond; { // so that some come while it ends
			server.Signal(syscall.SIGHUP)
		}
		if outlives {
			reported(t, spawnSend(t, at, "--messages 10"))
			server.Signal(syscall.SIGTERM)
		}
		if end := decode[served](t, result{stdout: server.Line() + "\n"}); !end.Drained {
			t.Errorf("it ended with %+v", end)
		}
		server.Want(cli.OK)
	}
}

// 64 connections with messages of 4 MiB stay below 512 MiB of memory.
// Matrix: RL-14, AIM-04, INV-11
func TestLargeMessagesOnManyConnectionsStayBelowHalfAGigabyte(t *testing.T) {
	for _, backend := range []uring.Backend{uring.Auto, uring.Epoll} {
		t.Run(string(backend), func(t *testing.T) {
			socket := fmt.Sprintf("@large-messages-%d-%s", os.Getpid(), backend)
			server, at := spawnServe(t, "--cores 2 --stats "+socket+" --backend "+string(backend))
			tooSlow := func() (n uint64) {
				s, err := control.ReadStats(t.Context(), socket)
				clitest.Must(t, err)
				for i := range s.Messenger.Cores {
					n += s.Messenger.Cores[i].TooSlow
				}
				return n
			}
			// On a busy machine a message may come at less than the least rate (Receiving.LeastRate), to either side.
			for tries := 0; tries < 10; tries++ {
				before := tooSlow()
				client := spawnSend(t, at, "--messages 96 --conns 64 --depth 1 --size 4MiB --timeout 4m")
				report := decode[sent](t, result{stdout: client.Line() + "\n"})
				m, err := cli.ReadMemory(server.PID())
				clitest.Must(t, err)
				slow := strings.Contains(report.Error, "the peer is too slow") || tooSlow() > before
				if m.Peak == 0 || m.Peak > 512<<20 || report.Error != "" && !slow || slow && tries == 9 {
					t.Errorf("%d MiB, send says %+v", m.Peak>>20, report)
				}
				if t.Logf("%d messages, %d MiB at most", report.Verified, m.Peak>>20); !slow {
					break
				}
			}
		})
	}
}
