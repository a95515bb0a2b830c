package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// hosts is the name service of the tests.
func hosts(_ context.Context, host string) ([]netip.Addr, error) {
	if host == "here.example" {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return nil, errors.New("no such host")
}

// result is how a run of the program ended.
type result struct {
	status         int
	stdout, stderr string
}

// ringmsgr runs the program to its end.
func ringmsgr(t testing.TB, args ...string) result {
	t.Helper()
	return ringmsgrWith(t, "", args...)
}

func ringmsgrWith(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var out, errs clitest.Buffer
	e := env{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, lookup: hosts}
	status := run(ctx, e, args)
	return result{status, out.String(), errs.String()}
}

// want fails the test unless the status is as expected.
func (r result) want(t testing.TB, status int) result {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d\nstdout: %s\nstderr: %s", r.status, status, r.stdout, r.stderr)
	}
	return r
}

// decode parses the only line of JSON.
func decode[T any](t testing.TB, r result) (v T) {
	t.Helper()
	if strings.Count(r.stdout, "\n") != 1 {
		t.Fatalf("want one line of JSON, got %q (stderr %q)", r.stdout, r.stderr)
	}
	d := json.NewDecoder(strings.NewReader(r.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, r.stdout)
	}
	return v
}

// running is a serve in the background.
type running struct {
	addr   string
	ready  string // its first line
	cancel func()
	lines  *bufio.Scanner
	errs   *clitest.Buffer
	status chan int
}

// serve starts "ringmsgr serve" and waits until it is ready. The test's end
// ends it, and it must exit with status 0. It drains for as long as a busy machine may take.
func serve(t testing.TB, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	s := &running{cancel: cancel, lines: bufio.NewScanner(r), errs: &clitest.Buffer{}, status: make(chan int, 1)}
	go func() {
		status := run(ctx, env{strings.NewReader(""), w, s.errs, nil}, append([]string{"serve", "--drain", "1m"}, args...))
		_ = w.Close()
		s.status <- status
	}()
	t.Cleanup(func() { s.stop(t) })
	if !s.lines.Scan() {
		t.Fatalf("serve is not ready: %s", s.errs)
	}
	s.ready = s.lines.Text()
	s.addr = regexp.MustCompile(`v2:[0-9.]+:\d+/\d+`).FindString(s.ready)
	return s
}

// stop ends serve, once, and returns the rest of its output.
func (s *running) stop(t testing.TB) (rest string) {
	t.Helper()
	s.cancel()
	for s.lines.Scan() {
		rest += s.lines.Text() + "\n"
	}
	if status := <-s.status; status != cli.OK {
		t.Errorf("serve ended with status %d: %s", status, s.errs)
	}
	s.status <- cli.OK // for the next call
	return rest
}

// mustHaveOnly checks that a log has no lines but those that are allowed; nil: none is.
func mustHaveOnly(t testing.TB, log string, allowed func(line string) bool) {
	t.Helper()
	for line := range strings.Lines(clitest.WithoutStalls(log)) {
		if allowed == nil || !allowed(line) {
			t.Errorf("unexpected output: %s", line)
		}
	}
}

// started is a messenger of the test's own making, which the end of the test closes.
func started(t testing.TB, cfg control.Config, chain ...*control.Dispatcher) *control.Messenger {
	t.Helper()
	cfg.Plane.Cores = 1
	m, err := control.New(cfg)
	clitest.Must(t, err)
	t.Cleanup(func() { clitest.Must(t, scope.Close(m)) })
	clitest.Must(t, m.Start(chain...))
	return m
}

// messenger is a peer that listens, and its address.
func messenger(t testing.TB, cfg control.Config, d *control.Dispatcher) string {
	t.Helper()
	cfg.Name, cfg.Nonce = wire.EntityName{Type: wire.Mon, ID: "a"}, new(uint32)
	free := netip.MustParseAddrPort("127.0.0.1:0")
	addrs, err := started(t, cfg, d).Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: free})
	clitest.Must(t, err)
	return addrs.Front().String()
}

// golden compares got with a file.
func golden(t testing.TB, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		clitest.Must(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	clitest.Must(t, err)
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", file, got, want)
	}
}

var (
	addrPattern   = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	hexPattern    = regexp.MustCompile(`0x[0-9a-f]+`)
	numberPattern = regexp.MustCompile(`([ :,])\d+( \d{3})*(\.\d+)?(e[-+]?\d+)?( us| ms| s)?( [kM]?B/s| [KMG]?i?B)?\b`)
)

// normal replaces the parts that differ from run to run: ports, numbers and backends.
func normal(s string) string {
	s = addrPattern.ReplaceAllString(s, "IP:PORT")
	s = hexPattern.ReplaceAllString(s, "HEX")
	s = strings.NewReplacer("io_uring", "ENGINE", "giouring", "ENGINE", "epoll", "ENGINE").Replace(s)
	return numberPattern.ReplaceAllString(s, "${1}N")
}

// keysOf is a file with the keys of a mon and of a client, or with another one for the client.
func keysOf(t *testing.T, client string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keyring")
	keys := "[mon.]\n\tkey = " + monKey + "\n[client.admin]\n\tkey = " + client + "\n"
	clitest.Must(t, os.WriteFile(file, []byte(keys), 0o600))
	return file
}
