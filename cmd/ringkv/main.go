package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/ringkv/kvformat"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

func main() {
	cli.Main((&env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}).run)
}

// env are the inputs and outputs of the program, and its flags.
type env struct {
	stdin                     io.Reader
	stdout, stderr            io.Writer
	log                       *slog.Logger
	engine                    scope.Engine
	listen, dir, stats        string
	cores, conns, depth, keys int
	size                      int64
	puts                      float64
	duration                  time.Duration
	acceptLoss                bool
}

// run is the whole program. It ends early when ctx does.
func (e *env) run(ctx context.Context, args []string) int {
	e.stdout = cli.NewOutput(e.stdout)
	root := &cobra.Command{Use: "ringkv", Short: "a durable key-value store, an example of a server on this library"}
	fs := root.PersistentFlags()
	e.engine.Register(fs)
	fs.StringVar(&e.listen, "listen", "v2:127.0.0.1:7777", "serve: `ADDRESS` to listen on")
	fs.StringVar(&e.dir, "dir", "", "serve: `DIRECTORY` of the values; made if it is missing")
	fs.StringVar(&e.stats, "stats", "", "serve: `PATH` of a Unix socket that serves statistics, or auto for @ringmsgr-stats-PID")
	fs.BoolVar(&e.acceptLoss, "accept-loss", false, "serve: start although acknowledged values are lost, with the others")
	cli.IntVar(fs, &e.cores, "cores", 1, 1, 1024, "`NUMBER` of cores; serve: always the same for a directory")
	cli.IntVar(fs, &e.conns, "conns", 16, 1, 1<<12, "load: `NUMBER` of connections")
	cli.IntVar(fs, &e.depth, "depth", 16, 1, 1<<16, "load: `NUMBER` of requests under way on each")
	cli.IntVar(fs, &e.keys, "keys", 10000, 1, math.MaxInt, "load: `NUMBER` of keys")
	cli.BytesVar(fs, &e.size, "size", 4<<10, 1, kvformat.MaxValue, "load: `BYTES` of a value")
	fs.Float64Var(&e.puts, "puts", 50, "load: `PERCENT` of the requests that put")
	cli.DurationVar(fs, &e.duration, "duration", 10*time.Second, 1, "load: `DURATION` of it")
	root.AddCommand(
		&cobra.Command{Use: "serve", Short: "serve the values in a directory", RunE: e.serve},
		&cobra.Command{Use: "put ADDRESS KEY", Short: "store standard input as a value", RunE: e.ask},
		&cobra.Command{Use: "get ADDRESS KEY", Short: "write a value to standard output", RunE: e.ask},
		&cobra.Command{Use: "delete ADDRESS KEY...", Short: "remove values", RunE: e.ask},
		&cobra.Command{Use: "scan ADDRESS [PREFIX]", Short: "list keys, in order", RunE: e.ask},
		&cobra.Command{Use: "load ADDRESS", Short: "put and get, and print rates and latencies", RunE: e.load},
	)
	return cli.Run(ctx, root, e.stdout, e.stderr, args)
}

// with calls f with a messenger of the cores, the engine and the log that the flags say, and
// closes it.
func (e *env) with(cfg control.Config, f func(m *control.Messenger) error) error {
	e.log = e.engine.Logger(e.stderr)
	cfg.Plane.Cores, cfg.Plane.Driver.Backend, cfg.Logger = e.cores, e.engine.Backend, e.log
	cli.GrowProcs(e.cores)
	m, err := control.New(cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(m), scope.Close(m))
}

// serve serves until ctx ends, or a core breaks.
func (e *env) serve(c *cobra.Command, _ []string) error {
	ctx := c.Context()
	at, err := scope.AddressReader{Proto: "v2", AnyPort: true}.Parse(ctx, e.listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen: %w", err)
	case e.dir == "":
		return cli.Usagef("--dir is missing")
	}
	locked, err := uring.LockDir(e.dir)
	if err != nil {
		return err
	}
	defer locked.Close()
	cfg := control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Nonce: &at.Nonce}
	cfg.Binding.Retries, cfg.Binding.RetryDelay = 20, 100*time.Millisecond // one that was killed keeps the address for a moment
	return e.with(cfg, func(m *control.Messenger) error {
		v := &server{m: m, dir: e.dir, segment: segmentSize, salt: rand.Uint32, log: e.log, acceptLoss: e.acceptLoss}
		if err := v.open(e.cores); errors.Is(err, errDamaged) {
			return fmt.Errorf("%w (with --accept-loss it starts with the rest)", err)
		} else if err != nil {
			return err
		}
		if err := m.Start(&control.Dispatcher{Fast: v.handle}); err != nil {
			return err
		}
		addrs, err := m.Bind(at)
		if err != nil {
			return fmt.Errorf("--listen %s: %w", e.listen, cli.Cause(err))
		}
		fmt.Fprintf(e.stdout, "listening %v, cores %d, backend %s\n", addrs[0], e.cores, m.Driver().Backend)
		return scope.Stats(m, e.stats, func() error {
			select {
			case err := <-m.Failures():
				return fmt.Errorf("a core broke: %w", err)
			case <-ctx.Done():
				return each(v.shards, (*shard).setMark) // so that the next start notices every missing record
			}
		})
	})
}
