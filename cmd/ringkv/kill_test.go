package main

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

const asProgram = "RINGKV_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// begin starts a server in a process of its own, and returns its address.
func begin(t *testing.T, args ...string) (cmd *exec.Cmd, addr string) {
	t.Helper()
	args = append(args, "serve", "--listen", "v2:127.0.0.1:0", "--log-level", "error", "--cores", "2")
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), asProgram+"=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString(',')
	if err != nil {
		t.Fatalf("it does not listen: %q, %v", line, err)
	}
	return cmd, strings.TrimSuffix(strings.TrimPrefix(line, "listening "), ",")
}

// The server is killed under load when a number of requests are answered, again and again,
// and must have every value that it has acknowledged.
func TestKilledAtAnyMomentItLosesNothingThatWasAcknowledged(t *testing.T) {
	rounds, seed := 3, rand.Uint64()
	if os.Getenv("RINGMSGR_LONG") != "" {
		rounds = 200
	}
	t.Logf("seed %d", seed)
	for _, backend := range []string{"auto", "epoll"} {
		t.Run(backend, func(t *testing.T) {
			dir, o := t.TempDir(), &model{t: t, ctx: t.Context(), rng: rand.New(rand.NewPCG(seed, 1))}
			for range rounds {
				cmd, addr := begin(t, "--dir", dir, "--backend", backend)
				e := env{stderr: io.Discard, engine: flags.Engine{Backend: backend, LogLevel: "off"}, cores: 1}
				err := e.dial(t.Context(), addr, 2, func(clients []client) error {
					o.clients = clients
					o.killed(cmd)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// killed is the life of a server. Some go on while it is being killed.
func (o *model) killed(cmd *exec.Cmd) {
	o.all(msgGet, keys)
	var left atomic.Int64
	left.Store(int64(1 + o.rng.IntN(2000)))
	for key := range keys {
		rng := rand.New(rand.NewPCG(o.rng.Uint64(), 1))
		o.under.Go(func() {
			for o.ask(pick(rng), key) == nil {
				if left.Add(-1) == 0 {
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
					for _, c := range o.clients {
						c.MarkDown()
					}
				}
			}
		})
	}
	o.under.Wait()
	o.Restarted()
}

// check runs the program in this process, and says what is not as it should be.
func check(t *testing.T, stdin, args string, status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	e := &env{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	got := e.run(t.Context(), strings.Fields(args))
	if got != status || !strings.Contains(out.String(), stdout) ||
		!strings.Contains(errs.String(), stderr) || stderr == "" && errs.Len() > 0 {
		t.Errorf("%s: status %d, %.80q, %q", args, got, out.String(), errs.String())
	}
}

func TestTheCommandsDoWhatTheyAreNamedFor(t *testing.T) {
	dir, large := t.TempDir(), strings.Repeat("large ", maxValue/6)
	cmd, addr := begin(t, "--dir", dir)
	for _, c := range []struct {
		stdin, args    string
		status         int
		stdout, stderr string
	}{
		{"value", "put ADDR a", cli.OK, "", ""},
		{"x", "put ADDR b", cli.OK, "", ""},
		{large, "put ADDR ab", cli.OK, "", ""},
		{"", "get ADDR a", cli.OK, "value", ""},
		{"", "get ADDR ab", cli.OK, large, ""},
		{"", "scan ADDR", cli.OK, "a\nab\nb\n", ""},
		{"", "scan ADDR a", cli.OK, "a\nab\n", ""},
		{"", "delete ADDR a b", cli.OK, "", ""},
		{"", "get ADDR a", cli.Failed, "", "no such key"},
		{"", "delete ADDR a", cli.Failed, "", "no such key"},
		{"", "put ADDR a", cli.Failed, "", "a value of 0 bytes"},
		{large + "larger", "put ADDR a", cli.Failed, "", "a value of 4194305 bytes"},
		{"", "load ADDR --duration 50ms --keys 10 --size 1KiB --conns 2", cli.OK, "puts ", ""},
		{"value", "put ADDR 0", cli.OK, "", ""},
		{"", "load ADDR --keys 1 --puts 0", cli.Failed, "", "not what load has put"},
		{"", "", cli.Usage, "", "no command"},
		{"", "get ADDR", cli.Usage, "", "get ADDRESS KEY"},
		{"", "serve", cli.Usage, "", "--dir is missing"},
		{"", "serve --dir x --cores 0", cli.Usage, "", "--cores 0"},
		{"", "serve --dir " + dir, cli.Failed, "", "is in use"},
		{"", "load ADDR --size 5MiB", cli.Usage, "", "--size"},
		{"", "load ADDR --puts 101", cli.Usage, "", "--puts"},
		{"", "-h", cli.OK, "load ADDRESS", ""},
	} {
		check(t, c.stdin, strings.ReplaceAll(c.args, "ADDR", addr), c.status, c.stdout, c.stderr)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	check(t, "", "serve --cores 3 --listen v2:127.0.0.1:0 --dir "+dir, cli.Failed, "", "written with --cores 2")
}
