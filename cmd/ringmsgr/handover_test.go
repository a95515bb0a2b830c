package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
)

func TestMain(m *testing.M) { clitest.Program(m, main) }

// serverChain is a serve in a process of its own, and its successors.
type serverChain struct {
	t     *testing.T
	args  []string // of each
	addr  string
	stats string
	path  string
	all   []*clitest.Process
}

// startChain starts the first one.
func startChain(t *testing.T, args ...string) *serverChain {
	t.Helper()
	dir := t.TempDir()
	d := &serverChain{t: t, stats: filepath.Join(dir, "stats"), path: filepath.Join(dir, "handover")}
	d.args = append([]string{"serve", "--handover", d.path, "--stats", d.stats, "--linger", "20s"}, args...)
	d.addr = regexp.MustCompile(`v2:[0-9.]+:\d+/\d+`).FindString(d.start())
	return d
}

// start starts one more process, and returns its first line.
func (d *serverChain) start(args ...string) string {
	d.t.Helper()
	p := clitest.Start(d.t, append(d.args, args...)...)
	d.all = append(d.all, p)
	return p.Line()
}

// handOver has the present one hand over.
func (d *serverChain) handOver() {
	d.t.Helper()
	if l := d.start("--take-over", d.path); !strings.HasPrefix(l, "listening") || !strings.Contains(l, d.addr) {
		d.t.Fatalf("the successor says %s, the first was %s", l, d.addr)
	}
	if got, want := d.snapshot().PID, d.all[len(d.all)-1].PID(); got != want {
		d.t.Fatalf("process %d answers, want its successor, %d", got, want)
	}
}

// snapshot are the statistics of the present process.
func (d *serverChain) snapshot() *control.Snapshot {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := control.ReadStats(ctx, d.stats)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// end ends the last one, and checks that all have ended well.
func (d *serverChain) end() {
	d.t.Helper()
	last := d.all[len(d.all)-1]
	last.Signal(syscall.SIGTERM)
	for _, p := range d.all {
		want := "handed over"
		if p == last {
			want = "ended"
		}
		if l := p.Line(); !strings.HasPrefix(l, want) {
			d.t.Errorf("it says %s, want %s", l, want)
		}
		p.Want(cli.OK)
		// A load with all its echoes ends, even without its last ack. The session is lossless: the
		// first attempt of each next process dials a client that is gone.
		mustHaveOnly(d.t, p.Stderr(), func(line string) bool {
			return strings.Contains(line, "attempt failed, dialling again") && strings.Contains(line, "connection refused") && !strings.Contains(line, d.addr)
		})
	}
	for _, path := range []string{d.path, d.stats} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			d.t.Errorf("%s is left: %v", path, err)
		}
	}
}

// handOvers is the number of hand-overs in a row.
func handOvers() int {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return 100
	}
	return 10
}

// untilDone runs send again and again until done is closed, and returns its report.
func untilDone(t *testing.T, done <-chan struct{}, args ...string) []sent {
	var all []sent
	for {
		r := ringmsgr(t, append([]string{"send", "--json"}, args...)...)
		if r.status != cli.OK {
			t.Errorf("send: %s %s", r.stdout, r.stderr)
			return all
		}
		all = append(all, decode[sent](t, r))
		select {
		case <-done:
			return all
		default:
		}
	}
}

// Sessions pass to successors without a loss; lossy clients, which keep their server, are not refused.
// Matrix: IN-07
func TestSessionsPassToSuccessors(t *testing.T) {
	peer := []string{"--peer", "osd", "--listen", "v2:127.0.0.1:0", "--policy", "lossless-peer"}
	for name, c := range map[string]struct {
		serve    []string
		loads    [][]string
		lossless bool
	}{
		"lossless": {[]string{"--name", "osd.0", "--policy", "lossless-peer"}, [][]string{
			append([]string{"--depth", "32", "--messages", "20000", "--name", "osd.10"}, peer...),
			append([]string{"--depth", "8", "--messages", "2000", "--size", "100KiB", "--cores", "2", "--name", "osd.11"}, peer...),
		}, true},
		"lossy": {[]string{"--linger", "1h"}, [][]string{ // 5000 messages may take longer than it does by default
			{"--messages", "50", "--conns", "3"}, {"--messages", "5000", "--depth", "4"},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := startChain(t, append(c.serve, "--cores", "2")...)
			done := make(chan struct{})
			var loads sync.WaitGroup
			reports := make([][]sent, len(c.loads))
			for i, args := range c.loads {
				loads.Go(func() { reports[i] = untilDone(t, done, append(args, d.addr)...) })
			}
			for range handOvers() {
				d.handOver()
			}
			close(done)
			loads.Wait()
			var reconnects, messages uint64
			for _, r := range slices.Concat(reports...) {
				if r.Lossy == c.lossless || r.Verified != r.Messages || r.Losses+r.Duplicates+r.Corrupt != 0 {
					t.Errorf("%+v", r)
				}
				reconnects += r.Reconnects
				messages += r.Messages
			}
			if c.lossless != (reconnects > 0) {
				t.Errorf("%d sessions have seen a hand-over", reconnects)
			}
			t.Logf("%d hand-overs, %d messages, %d reconnects", handOvers(), messages, reconnects)
			d.end()
		})
	}
}

func TestSuccessorThatCannotStartLeavesServeAsItIs(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "handover")
	s := serve(t, "--name", "osd.1", "--handover", path, "--log-level", "off", "--drain", "0s", "--linger", "0s")
	r := ringmsgr(t, "serve", "--name", "osd.2", "--take-over", path, "--handover", path).want(t, cli.Failed)
	if !strings.Contains(r.stderr, "osd.2") {
		t.Errorf("stderr %q", r.stderr)
	}
	ringmsgr(t, "send", "--peer", "osd", "--messages", "10", s.addr).want(t, cli.OK)
	ringmsgr(t, "serve", "--take-over", filepath.Join(dir, "nobody")).want(t, cli.Failed)
	ringmsgr(t, "serve", "--linger", "-1s").want(t, cli.Usage)
}
