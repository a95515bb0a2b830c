package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
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
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
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
	clitest.Must(d.t, err)
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
		// A load with all its echoes ends, even without its last ack (acknowledgeTime). The session is lossless: the
		// first attempt of each next process dials a client that is gone or hangs up as it goes, and the drain of the last one waits for it in vain.
		mustHaveOnly(d.t, p.Stderr(), func(line string) bool {
			gone := strings.Contains(line, "attempt failed, dialling again") && (strings.Contains(line, "connection refused") || strings.Contains(line, "the peer hung up"))
			return gone && !strings.Contains(line, d.addr) || strings.Contains(line, "replies were not delivered") && strings.Contains(line, "deadline exceeded")
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
	for _, flag := range []string{"--handover", "--stats"} {
		ringmsgr(t, "serve", "--name", "osd.1", "--take-over", path, flag, filepath.Join(dir, "nowhere", "at")).want(t, cli.Failed)
	}
	ringmsgr(t, "send", "--peer", "osd", "--messages", "10", s.addr).want(t, cli.OK)
	ringmsgr(t, "serve", "--take-over", filepath.Join(dir, "nobody")).want(t, cli.Failed)
	ringmsgr(t, "serve", "--linger", "-1s").want(t, cli.Usage)
}

// fullListener finds no free descriptor at first.
type fullListener struct {
	net.Listener
	calls int
}

func (l *fullListener) Accept() (net.Conn, error) {
	if l.calls++; l.calls == 1 {
		return nil, syscall.EMFILE
	}
	return nil, net.ErrClosed
}

func TestServeWaitsForSuccessorsAfterAFailedAccept(t *testing.T) {
	l := &fullListener{}
	if accept(t.Context(), l, nil, slog.New(slog.DiscardHandler)) || l.calls != 2 {
		t.Errorf("%d accepts, want 2", l.calls)
	}
}

// holder stops the first handshake of a client at one of its steps.
type holder struct {
	at      probe.Point
	after   bool
	once    sync.Once
	reached chan struct{}
	release chan struct{}
}

// At implements probe.Probe.
func (h *holder) At(ctx context.Context, e probe.Event) error {
	if e.Point != h.at || e.When == probe.Data || (e.When == probe.After) != h.after {
		return nil
	}
	h.once.Do(func() {
		close(h.reached)
		select {
		case <-h.release:
		case <-ctx.Done():
		}
	})
	return nil
}

func (h *holder) String() string {
	if h.after {
		return "after " + h.at.String()
	}
	return "before " + h.at.String()
}

// fresh is a client whose handshake is under way while the server hands over.
type fresh struct {
	*holder
	c     *control.Conn
	echos chan uint64
}

func newFresh(t *testing.T, i int, h *holder, policy control.Policy, to wire.Addr) *fresh {
	t.Helper()
	f := &fresh{holder: h, echos: make(chan uint64, 1)}
	m := started(t, control.Config{
		Name: wire.EntityName{Type: wire.Client, ID: fmt.Sprint(i)}, Default: &policy, Diagnostics: control.Diagnostics{Probe: h},
		Timeouts: control.Timeouts{Handshake: time.Hour}, // a wait for that fails the test
	}, &control.Dispatcher{Fast: func(_ *control.Conn, msg *control.Message) bool {
		f.echos <- msg.TID
		return true
	}})
	var err error
	f.c, err = m.Connect(to, wire.OSD)
	clitest.Must(t, err)
	return f
}

// held waits until the handshake stands still.
func (f *fresh) held(t *testing.T) {
	t.Helper()
	select {
	case <-f.reached:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%v: not reached, %v: %v", f.holder, f.c.State(), f.c.Err())
	}
}

// works lets the handshake go on, and sends a message when the connection is ready.
func (f *fresh) works(t *testing.T, attempts uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := f.c.WaitReady(ctx); err != nil {
		t.Errorf("%v: not ready, %v: %v", f.holder, err, f.c.Err())
		return
	}
	msg := control.NewMessage(2, []byte("fresh"), nil)
	msg.TID = 7
	if err := f.c.Send(msg); err != nil {
		t.Errorf("%v: %v", f.holder, err)
		return
	}
	select {
	case <-f.echos:
	case <-ctx.Done():
		t.Errorf("%v: no echo, %v: %v", f.holder, f.c.State(), f.c.Err())
	}
	st, err := f.c.Stats()
	if err != nil || st.Counters.Attempts > attempts || st.Counters.RemoteResets != 0 {
		t.Errorf("%v: %d attempts, %d sessions lost, %v", f.holder, st.Counters.Attempts, st.Counters.RemoteResets, err)
	}
}

// A handshake that is under way at the moment of a hand-over, at whatever step
// and for however long, ends in a connection that works: that of a session is
// closed by the predecessor and begins anew, at once, with the successor; that of
// a lossy connection goes on with the predecessor. The same holds for one that resumes
// a session, which the hand-over before it made necessary.
func TestAHandshakeUnderWaySurvivesAHandOver(t *testing.T) {
	read, write := probe.FrameRead, probe.FrameWrite
	points := []probe.Point{
		{Step: probe.SocketConnecting}, {Step: probe.BannerWrite}, {Step: probe.BannerRead}, {Step: probe.BannerPayloadRead},
		{Step: write, Tag: frame.TagHello}, {Step: read, Tag: frame.TagHello},
		{Step: write, Tag: frame.TagAuthRequest}, {Step: read, Tag: frame.TagAuthDone},
		{Step: write, Tag: frame.TagAuthSignature}, {Step: read, Tag: frame.TagAuthSignature},
		{Step: write, Tag: frame.TagClientIdent}, {Step: read, Tag: frame.TagServerIdent},
	}
	resuming := []probe.Point{
		{Step: write, Tag: frame.TagSessionReconnect}, {Step: read, Tag: frame.TagSessionReconnectOK},
	}
	for name, c := range map[string]struct {
		server   string
		client   control.Policy
		points   []probe.Point
		attempts uint64
	}{
		"session": {"stateful-server", control.LosslessClient(), points, 2},
		"lossy":   {"stateless-server", control.LossyClient(), points, 1},
		"resumed": {"stateful-server", control.LosslessClient(), resuming, 3},
	} {
		t.Run(name, func(t *testing.T) {
			d := startChain(t, "--name", "osd.0", "--cores", "2", "--policy", c.server, "--timeout", "1h")
			to, err := wire.ParseAddr(d.addr)
			clitest.Must(t, err)
			var all []*fresh
			for i, p := range c.points {
				for _, after := range []bool{false, true} {
					if p.Step == read && !after || p.Step == probe.SocketConnecting && after {
						continue // before a read the tag is not known, and a dial has no end
					}
					h := &holder{at: p, after: after, reached: make(chan struct{}), release: make(chan struct{})}
					all = append(all, newFresh(t, i, h, c.client, to))
				}
			}
			if c.attempts == 3 {
				for _, f := range all {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					clitest.Must(t, f.c.WaitReady(ctx))
					cancel()
				}
				d.handOver()
			}
			for _, f := range all {
				f.held(t)
			}
			d.handOver()
			for _, f := range all {
				close(f.release)
			}
			for _, f := range all {
				f.works(t, c.attempts)
			}
			if open := d.snapshot().Messenger.Open; c.attempts > 1 && open != len(all) {
				t.Errorf("the successor has %d of %d sessions", open, len(all))
			}
			for _, f := range all {
				f.c.MarkDown()
			}
			d.end()
		})
	}
}
