package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// bare is an environment without a ceph.conf and a key.
func bare(name string) string {
	return map[string]string{"CEPH_CONF": os.DevNull, "CEPH_KEYRING": "/nonexistent"}[name]
}

// noDNS knows nothing.
func noDNS(_ context.Context, _, _, name string) (string, []*net.SRV, error) {
	return "", nil, &net.DNSError{Err: "no such host", Name: name, Server: "10.0.0.53:53", IsNotFound: true}
}

// call runs the program.
func call(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err clitest.Buffer
	status = run(t.Context(), env{stdin: strings.NewReader(""), stdout: &out, stderr: &err, getenv: bare, lookupSRV: noDNS}, args)
	return status, out.String(), clitest.WithoutStalls(err.String())
}

func TestWrongCallsSayWhatIsWrong(t *testing.T) {
	keyring := filepath.Join(t.TempDir(), "keyring")
	clitest.Must(t, os.WriteFile(keyring, []byte("[client.other]\nkey = AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==\n"), 0o600))
	const mon = "--mon=v2:127.0.0.1:1"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "no mon_host in " + os.DevNull + " either, and the DNS has no _ceph-mon._tcp: lookup _ceph-mon._tcp on 10.0.0.53:53: no such host\n"},
		{[]string{"--mon", "127.0.0.1:x", "status"}, "--mon: wrong address: \"127.0.0.1:x\""},
		{[]string{"--mon", "any:127.0.0.1:6789", "status"}, "want v2:HOST:PORT/NONCE"},
		{[]string{mon, "put", "pool"}, "usage: cephclient put POOL OBJECT FILE"},
		{[]string{mon, "--keyring", keyring, "status"}, "has no key of client.admin"},
	} {
		status, stdout, stderr := call(t, c.args...)
		if status != cli.Usage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %q %q; want %q", c.args, status, stdout, stderr, c.want)
		}
	}
}

func TestThePoolMayBeAFlag(t *testing.T) {
	for args, want := range map[string]int{
		"ls -p a": cli.Failed, "stat -p a b": cli.Failed, "status -p a": cli.Failed, "stat -p a b c": cli.Usage, "ls -p a b": cli.Usage, "rm -p a": cli.Usage,
	} {
		words := append([]string{"--mon", "v2:127.0.0.1:1", "--timeout", "1ns"}, strings.Fields(args)...)
		if status, stdout, stderr := call(t, words...); status != want || stdout != "" {
			t.Errorf("%s: status %d, %q %q", args, status, stdout, stderr)
		}
	}
}

func TestTheKeyIsWipedWhereTheRunIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key, failed := cephx.ParseKey("AQBAGgFrkJ2DJBAALXeqe7bTTWvmuDKp+LpfWA==")
	clitest.Must(t, failed)
	cfg := rados.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Key: key, Mons: []wire.Addr{{Type: wire.AddrMsgr2}}}
	if _, err := connect(ctx, cfg); err == nil || !key.IsZero() {
		t.Errorf("%v, key %v", err, key)
	}
}

// A command that takes as long as its data does bounds its steps, all others are bounded as a whole.
func TestTheTimeoutBoundsAllOfACommandUnlessItIsLong(t *testing.T) {
	mon := monitor(t, nil, nil)
	for _, long := range []bool{false, true} {
		o := options{mons: mon, engine: scope.Engine{Level: math.MaxInt}}
		o.Session.Register(new(pflag.FlagSet), &o.cfg, "client.admin", 10*time.Second, "")
		bounded := long
		err := env{getenv: bare}.dialled(t.Context(), &o, command{long: long, run: func(ctx context.Context, _ env, _ *rados.Cluster, _ []string) error {
			_, bounded = ctx.Deadline()
			return nil
		}}, nil)
		if err != nil || bounded == long {
			t.Errorf("long %v: bounded %v, %v", long, bounded, err)
		}
	}
}

func TestASilentPipeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	clitest.Must(t, syscall.Mkfifo(pipe, 0o600))
	for _, flag := range []string{"--conf ", "--keyring "} {
		clitest.Check(t, func(stdin io.Reader, stdout, stderr io.Writer, args []string) int {
			return run(ctx, env{stdin: stdin, stdout: stdout, stderr: stderr, getenv: bare}, args)
		}, "", "--mon v2:127.0.0.1:1 ls pool "+flag+pipe, cli.Failed, "", flag+pipe+": it is not read to its end: context canceled\n")
	}
	in, out := io.Pipe()
	defer out.Close()
	if n, err := cli.Until(ctx, func() (int, error) { return in.Read([]byte{0}) }); n != 0 || !errors.Is(err, context.Canceled) {
		t.Error(n, err)
	}
	if err := (env{stdin: in}).copyFrom(ctx, "-", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAPutThatFailsClosesItsFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	clitest.Must(t, syscall.Mkfifo(pipe, 0o600))
	written := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		for err == nil {
			_, err = f.Write(make([]byte, 1<<20))
		}
		written <- errors.Join(err, f.Close())
	}()
	full := func(context.Context, int64, []byte) error { return syscall.ENOSPC }
	if err := (env{options: &options{}}).copyFrom(t.Context(), pipe, full); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if err := <-written; !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
}

func TestABenchSaysWhatItHasMeasured(t *testing.T) {
	n := 0
	calls, _ := cli.Loop(1, math.MaxUint64, time.Hour, func(_ int, done func(string, error)) {
		if n++; n == 3000 {
			done("write", io.EOF)
		} else {
			done("write", nil)
		}
	})
	r, count := result("write", 3, 4096, &calls, 6*time.Millisecond), int64(0)
	for _, b := range r.Buckets {
		count += b.Count
	}
	l := []float64{r.Latency.Min, r.Latency.P50, r.Latency.P90, r.Latency.P99, r.Latency.P999, r.Latency.Max}
	if r.Mode != "write" || r.Threads != 3 || r.Size != 4096 || r.Operations != 3000 || count != 3000 || r.CPU != 2 || r.Seconds != calls.Took.Seconds() ||
		r.PerSecond != 3000/r.Seconds || r.MBytes != r.PerSecond*4096/1e6 || !slices.IsSorted(l) || r.Latency.Mean < l[0] || r.Latency.Mean > l[5] {
		t.Errorf("%+v", r)
	}
}

// badValues has values that a flag cannot take which may be any text; empty: it takes all.
var badValues = map[string]string{
	"conf": "/nonexistent", "duration": "-1s", "seconds": "0s", "size": "0", "threads": "0", "timeout": "0s",
	"keylog": "/nonexistent/x", "keyring": "/nonexistent", "locator": "", "mon": "any:127.0.0.1:6789", "namespace": "",
	"pool": "", "snap": "", "trace": "/nonexistent/x",
}

// Every flag that gets a value it cannot take says so by its name, on standard error
// alone, in one line and without the words of packages.
// Matrix: OB-08
func TestEveryFlagIsNamedByWhatItRefuses(t *testing.T) {
	fs := new(pflag.FlagSet)
	new(options).register(fs, bare)
	fs.VisitAll(func(f *pflag.Flag) {
		bad, ok := badValues[f.Name]
		if !ok {
			bad = "?"
		}
		calls := [][]string{{"--mon", "v2:127.0.0.1:1", "status", "--" + f.Name + "=" + bad}, {"--mon", "v2:127.0.0.1:1", "status", "--" + f.Name}}
		if bad == "" {
			calls = calls[1:]
		} else if f.Name == "all" || f.Name == "quiet" { // it needs no value
			calls = calls[:1]
		}
		for _, args := range calls {
			status, stdout, stderr := call(t, args...)
			line, rest, _ := strings.Cut(stderr, "\n")
			if status == cli.OK || stdout != "" || !strings.Contains(line, "--"+f.Name) || rest != "" && !strings.HasPrefix(rest, "run 'cephclient ") {
				t.Errorf("%q: status %d, %q %q", args, status, stdout, stderr)
			}
			for _, internal := range []string{"control:", "dataplane:", "rados:", "mon: the", "wire:", "auth:", "strconv", "open /"} {
				if strings.Contains(stderr, internal) {
					t.Errorf("%q: %q tells of %q", args, stderr, internal)
				}
			}
		}
	})
}

// A terminal shows the progress of a transfer, unless the user wants quiet. Other outputs do
// not.
func TestProgressIsForTerminals(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no terminals: %v", err)
	}
	defer terminal.Close()
	size := func() int64 { return 100 }
	for _, c := range []struct {
		e    env
		says bool
	}{
		{env{stderr: terminal, options: &options{}}, true},
		{env{stderr: terminal, options: &options{quiet: true}}, false},
		{env{stderr: new(bytes.Buffer), options: &options{}}, false},
	} {
		m := c.e.meter(size)
		if (m.to != nil) != c.says {
			t.Errorf("%+v", m)
		}
		var out strings.Builder
		m.close() // no bytes were moved
		if m.to == nil {
			m.add(50)
			m.close()
			continue
		}
		m.to = &out
		m.add(50)
		m.add(200) // the file grew
		m.close()
		if text := out.String(); !strings.Contains(text, "50 B [==========          ] of 100 B, ") || !strings.Contains(text, "250 B [====================] of 100 B, ") || !strings.HasSuffix(text, "\n") {
			t.Errorf("%q", text)
		}
	}
}

func TestAListHasANameOnEachLine(t *testing.T) {
	var whole bytes.Buffer
	clitest.Must(t, lines(env{stdout: &whole}, []string{"a", "b"}, nil))
	clitest.Must(t, lines(env{stdout: &whole}, nil, nil))
	if whole.String() != "a\nb\n" {
		t.Errorf("%q", whole.String())
	}
}
