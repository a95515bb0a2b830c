package main

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/pair"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

func TestMain(m *testing.M) { clitest.Program(m, main) }

// begin starts a server in a process of its own, and returns its address.
func begin(t *testing.T, args ...string) (server *clitest.Process, addr string) {
	t.Helper()
	args = append([]string{"serve", "--listen", "v2:127.0.0.1:0", "--log-level", "error", "--cores", "2"}, args...)
	server = clitest.Start(t, args...)
	addr, _, _ = strings.Cut(strings.TrimPrefix(server.Line(), "listening "), ",")
	return server, addr
}

// The server is killed under load when a number of requests are answered, again and again,
// and must have every value that it has acknowledged.
// Matrix: KV-02
func TestKilledAtAnyMomentItLosesNothingThatWasAcknowledged(t *testing.T) {
	rounds, seed := 3, rand.Uint64()
	if os.Getenv("RINGMSGR_LONG") != "" {
		rounds = 200
	}
	t.Logf("seed %d", seed)
	for _, backend := range []string{"auto", "epoll"} {
		t.Run(backend, func(t *testing.T) {
			dir, a := t.TempDir(), pair.NewAudit(t, t.Context(), tested(seed), seed)
			for range rounds {
				server, addr := begin(t, "--dir", dir, "--backend", backend)
				engine := scope.Engine{Backend: uring.Backend(backend), Level: math.MaxInt}
				e := env{stderr: io.Discard, engine: engine, cores: 1}
				err := e.dial(t.Context(), addr, 2, func(conns []*control.Conn) error {
					a.Conns = conns
					a.Everything()
					a.Storm(1+a.Rand.IntN(2000), server.Kill)
					return nil
				})
				clitest.Must(t, err)
			}
		})
	}
}

func TestAMessengerEndsBehindWhatItIsFor(t *testing.T) {
	var used *control.Messenger
	cfg := control.Config{Name: wire.EntityName{Type: wire.Client, ID: "x"}}
	err := (&env{stderr: io.Discard, cores: 1}).with(cfg, func(m *control.Messenger) error { used = m; return errOther })
	if !errors.Is(err, errOther) {
		t.Errorf("it ends with %v", err)
	}
	if err := used.Start(); !errors.Is(err, control.ErrShutdown) {
		t.Errorf("it goes on: %v", err)
	}
}

// Matrix: KV-08, KV-10
func TestTheCommandsDoWhatTheyAreNamedFor(t *testing.T) {
	dir, large := t.TempDir(), strings.Repeat("large ", kvformat.MaxValue/6)
	server, addr := begin(t, "--dir", dir)
	check := func(stdin, args string, status int, stdout, stderr string) {
		t.Helper()
		clitest.Check(t, func(stdin io.Reader, stdout, stderr io.Writer, args []string) int {
			return (&env{stdin: stdin, stdout: stdout, stderr: stderr}).run(t.Context(), args)
		}, stdin, strings.ReplaceAll(args, "ADDR", addr), status, stdout, stderr)
	}
	check("value", "put ADDR a", cli.OK, "", "")
	check("x", "put ADDR b", cli.OK, "", "")
	check(large, "put ADDR ab", cli.OK, "", "")
	check("", "get ADDR a", cli.OK, "value", "")
	check("", "get ADDR ab", cli.OK, large, "")
	check("", "scan ADDR", cli.OK, "a\nab\nb\n", "")
	check("", "scan ADDR a", cli.OK, "a\nab\n", "")
	if s := (&env{stdin: strings.NewReader(""), stdout: clitest.Full{}, stderr: io.Discard}).run(t.Context(), []string{"scan", addr}); s != cli.Failed {
		t.Errorf("a scan to a full disk has status %d", s)
	}
	check("", "delete ADDR a b", cli.OK, "", "")
	check("", "get ADDR a", cli.Failed, "", "no such key")
	check("", "delete ADDR ab a", cli.Failed, "", `"a": there is no such key`)
	check("", "put ADDR a", cli.Failed, "", "a value of 0 bytes")
	check(large+"larger", "put ADDR a", cli.Failed, "", "a value of 4194305 bytes")
	check("", "load ADDR --duration 50ms --keys 10 --size 1KiB --conns 2", cli.OK, "puts ", "")
	check("value", "put ADDR 0", cli.OK, "", "")
	check("", "load ADDR --keys 1 --puts 0", cli.Failed, "", "not what load has put")
	check("", "", cli.Usage, "", "no command")
	check("", "get ADDR", cli.Usage, "", "get ADDRESS KEY")
	check("", "serve", cli.Usage, "", "--dir is missing")
	check("", "serve --dir x --cores 0", cli.Usage, "", `--cores "0"`)
	check("", "serve --dir "+dir, cli.Failed, "", "is in use")
	check("", "serve --listen v2:127.0.0.1:0 --dir "+t.TempDir()+" --stats "+dir+"/none/x", cli.Failed, "listening", "--stats "+dir)
	check("", "load ADDR --size 5MiB", cli.Usage, "", "--size")
	check("", "load ADDR --puts 101", cli.Usage, "", "--puts")
	check("", "load ADDR --puts NaN", cli.Usage, "", "--puts")
	check("", "load ADDR --conns 1000000000000000", cli.Usage, "", "--conns")
	check("", "-h", cli.OK, "load ADDRESS", "")
	server.Signal(syscall.SIGTERM)
	server.Want(cli.OK)
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	strange, last := logs[0]+".d", logs[len(logs)-1]
	clitest.Must(t, errors.Join(os.Mkdir(strange, 0o700), os.Truncate(last, 0)))
	check("", "serve --cores 3 --dir "+dir, cli.Failed, "", "written with --cores 2")
	check("", "serve --cores 2 --dir "+dir, cli.Failed, "", "damaged: "+last+" at 0")
	check("", "serve --cores 2 --dir "+dir, cli.Failed, "", "file="+strange)
	server, _ = begin(t, "--dir", dir, "--accept-loss")
	server.Signal(syscall.SIGTERM)
	server.Want(cli.OK)
}
