package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// cannedSnapshots are two, two seconds apart.
func cannedSnapshots() (before, now *control.Snapshot) {
	at := time.Date(2026, 5, 4, 13, 14, 15, 0, time.UTC)
	snap := func(seconds int) *control.Snapshot {
		n := uint64(seconds)
		s := &control.Snapshot{Time: at.Add(time.Duration(seconds) * time.Second), PID: 4711}
		m := &s.Messenger
		m.Name, m.Addrs, m.Backend, m.Open, m.HalfOpen, m.InFlight = "osd.3", "[v2:10.0.0.3:6800/77]", "io_uring", 4, 1, 3<<20
		m.Counters.Conns = 9
		m.Steering.Active, m.Steering.Rules = true, []string{"table_addr", "hint"}
		for i := range uint64(3) {
			c := dataplane.CoreStats{
				CoreStats: loop.CoreStats{
					Core: int(i), Handlers: int64(2 - i), Receive: "auto", Receiving: int64(2-i) / 2, Stalls: i,
					BytesIn: n * 5e8 >> (8 * i), BytesOut: n * 1e7 >> (4 * i), Writes: n * 3000,
					CPU: time.Duration(i+1)*time.Hour/10 + time.Duration(n*(800-300*i))*time.Millisecond,
				},
				Counts: dataplane.Counts{MessagesIn: 1000 + n*(100000>>(4*i)), MessagesOut: 900 + n*(90000>>(4*i))},
			}
			c.Driver.Syscalls, c.Driver.InFlight, c.Driver.Overflows = n*7000, 20+i, i
			m.Cores = append(m.Cores, c)
		}
		m.Cores[2].Stalled = true
		for i := range uint64(4) {
			c := control.ConnStats{ID: i + 1, Peer: fmt.Sprintf("v2:10.0.0.%d:6800/%d", 100+i, 12345678*i), State: "ready", Policy: "lossless-peer", Protocol: "msgr2.1", Mode: "crc"}
			c.IO = dataplane.HandlerStats{
				Core: int(i % 2), MessagesIn: n * 700 * i, MessagesOut: n * 3 * i, BytesIn: n * 1000 * i, BytesOut: n * 2000000 * i,
				InSeq: n * 700 * i, OutSeq: n * 3 * i, Queued: int(4 - i), Sent: int(i), AckLag: 10 * i,
			}
			c.Counters.Ready = 1 + i
			c.Placement.Core, c.Placement.Intended, c.Placement.By = int(i%2), int(i%2), "hash"
			s.Conns = append(s.Conns, c)
		}
		s.Conns[0].Entity, s.Conns[0].Remote = "client.admin", "10.0.0.100:53412"
		s.Conns[3].Entity, s.Conns[3].Remote = "client.admin", "10.0.0.103:41202"
		s.Conns[1].State, s.Conns[1].Error = "connecting", "connect: peer v2:10.0.0.101:6800/12345678: connection refused"
		s.Conns[2].State, s.Conns[3].Mode = "standby", "secure"
		p := &s.Conns[3].Placement
		p.Core, p.Intended, p.By, p.Reason = 1, 0, "session", "unsteered"
		s.Conns[3].IO.Throttled, s.Conns[3].HeldBytes = true, 4096
		return s
	}
	before, now = snap(10), snap(12)
	before.Conns = before.Conns[:3] // the last one is new
	return before, now
}

func TestTopDrawsWhatHappened(t *testing.T) {
	before, now := cannedSnapshots()
	text := newTopFrame(before, now).render(topOrders["rate"])
	golden(t, "top-once", text)
	for _, size := range [][2]int{{200, 50}, {80, 24}, {40, 5}} {
		lines := strings.Split(fit(text, size[0], size[1]), "\n")
		if len(lines) > size[1] || !strings.HasPrefix(lines[0], "ringmsgr top   osd.3") {
			t.Errorf("%d lines on a screen of %d: %q", len(lines), size[1], lines)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > size[0] {
				t.Errorf("a line of %d columns on a screen of %d: %q", n, size[0], l)
			}
		}
	}
	now.Conns[3].Entity, now.Conns[3].Error, now.Conns[3].Policy, now.Messenger.Backend = "client.\x1b[2J", "refused\u009b2J", "\x1b", "\x1b"
	hostile := newTopFrame(before, now).render(topOrders["rate"])
	if strings.ContainsAny(hostile, "\x1b\u009b") || !strings.Contains(hostile, "client.?[2J") {
		t.Errorf("what a peer says controls the terminal: %q", hostile)
	}
}

func TestTopOrdersConnections(t *testing.T) {
	before, now := cannedSnapshots()
	f := newTopFrame(before, now)
	for order, want := range map[string]string{
		"rate": "[4 3 2 1]", "bytes": "[4 3 2 1]", "queue": "[1 2 3 4]", "lag": "[4 3 2 1]", "core": "[1 3 2 4]", "peer": "[2 3 1 4]", "id": "[1 2 3 4]",
	} {
		f.render(topOrders[order])
		var ids []uint64
		for _, c := range f.conns {
			ids = append(ids, c.ID)
		}
		if got := fmt.Sprint(ids); got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
}

func TestTopOfAnotherProcessBeginsAnew(t *testing.T) {
	before, now := cannedSnapshots()
	before.PID++
	if f := newTopFrame(before, now); f.total != (topRates{}) || len(f.conns) != 4 {
		t.Errorf("%+v", f)
	}
	// Counters of a core that is stalled are not known.
	before, now = cannedSnapshots()
	now.Messenger.Cores[0] = dataplane.CoreStats{CoreStats: loop.CoreStats{Stalled: true}}
	if f := newTopFrame(before, now); f.cores[0].in != 0 || f.cores[0].cpu != -1 {
		t.Errorf("%+v", f.cores[0])
	}
}

// It finds a process by the path of its socket, or by its number.
func TestTopWatchesServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats")
	for stats, name := range map[string]string{path: path, "auto": fmt.Sprint(os.Getpid())} {
		s := serve(t, "--cores", "2", "--stats", stats)
		if st, err := os.Stat(path); stats == path && (err != nil || st.Mode().Perm() != 0o600) {
			t.Errorf("%v, %v", st, err)
		}
		text := ringmsgr(t, "top", "--once", "--every", "20ms", name).want(t, cli.OK).stdout
		if !strings.Contains(text, s.addr) || !strings.Contains(text, fmt.Sprint("pid ", os.Getpid())) || strings.Contains(text, "\x1b") {
			t.Errorf("top shows %s", text)
		}
		now := decode[control.Snapshot](t, ringmsgr(t, "top", "--json", "--once", "--every", "20ms", name).want(t, cli.OK))
		if m := now.Messenger; now.PID != os.Getpid() || len(m.Cores) != 2 || m.Name != "mon.a" {
			t.Errorf("%+v", now)
		}
		s.stop(t)
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
		ringmsgr(t, "top", "--once", name).want(t, cli.Failed)
	}
}

func TestTopSaysWhyThereAreNoStatistics(t *testing.T) {
	for _, c := range []struct {
		process  func(c net.Conn)
		patience time.Duration
		says     string
	}{
		{func(net.Conn) {}, time.Minute, "the process answers its own user and root alone"}, // of another user
		{says("nonsense"), time.Minute, ": invalid character"},
		{says(""), 50 * time.Millisecond, ": no answer within 50ms"},
		{says(""), 1, ": no answer within 1ns"}, // it is over before the dial
	} {
		path := filepath.Join(t.TempDir(), "stats")
		clitest.Listen(t, "unix", path, c.process)
		err := (&top{once: true, every: 1, patience: c.patience}).run(t.Context(), env{}, []string{path})
		if err == nil || !strings.HasPrefix(err.Error(), "no statistics at "+path+": ") || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "control:") {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
}
