package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}, os.Args[1:]))
}

// env is what the program gets from its surroundings, and its flags.
type env struct {
	stdin                       io.Reader
	stdout, stderr              io.Writer
	listen, dir, backend, level string
	cores, conns, depth, keys   int
	size, puts                  string
	timeout, duration           time.Duration
}

func (e *env) register(fs *flag.FlagSet) {
	fs.StringVar(&e.listen, "listen", "v2:127.0.0.1:7777", "serve: `ADDRESS` to listen on")
	fs.StringVar(&e.dir, "dir", "", "serve: `DIRECTORY` of the values; it is made if it is not there")
	fs.StringVar(&e.backend, "backend", "auto", "I/O `ENGINE`: auto, io_uring or epoll")
	fs.IntVar(&e.cores, "cores", 1, "`NUMBER` of cores; serve: that of a directory cannot be changed")
	fs.DurationVar(&e.timeout, "timeout", 30*time.Second, "`DURATION` at most of getting connected, and of all that is no load")
	fs.IntVar(&e.conns, "conns", 16, "load: `NUMBER` of connections")
	fs.IntVar(&e.depth, "depth", 16, "load: `NUMBER` of requests under way on each")
	fs.IntVar(&e.keys, "keys", 10000, "load: `NUMBER` of keys; they are put first")
	fs.StringVar(&e.size, "size", "4KiB", "load: `BYTES` of a value")
	fs.StringVar(&e.puts, "puts", "50%", "load: `SHARE` of the requests that put")
	fs.DurationVar(&e.duration, "duration", 10*time.Second, "load: `DURATION` of it")
	flags.RegisterLogLevel(fs, &e.level, "warn")
}

// commands are the program's verbs, with the number of arguments that each takes.
var commands = []struct {
	name, args, help string
	least, most      int
	run              func(ctx context.Context, e *env, args []string) error
}{
	{"serve", "", "serve the values in a directory", 0, 0, serve},
	{"put", " ADDRESS KEY", "store what is read from standard input", 2, 2, client(put)},
	{"get", " ADDRESS KEY", "write a value to standard output", 2, 2, client(get)},
	{"delete", " ADDRESS KEY...", "remove values", 2, 1 << 16, client(remove)},
	{"scan", " ADDRESS [PREFIX]", "list keys, in order", 1, 2, client(scanKeys)},
	{"load", " ADDRESS", "put and get, and say how fast that is", 1, 1, load},
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	err := e.execute(ctx, args)
	switch {
	case err == nil:
		return cli.OK
	case cli.IsUsage(err):
		fmt.Fprintf(e.stderr, "ringkv: %v\nrun 'ringkv -h' for help\n", err)
		return cli.Usage
	}
	fmt.Fprintf(e.stderr, "ringkv: %v\n", cli.OneLine(err))
	return cli.Failed
}

func (e *env) execute(ctx context.Context, args []string) error {
	fs := cli.NewFlags("ringkv")
	e.register(fs)
	rest, err := cli.Parse(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		e.help(fs)
		return nil
	case err != nil:
		return err
	case len(rest) == 0:
		return cli.Usagef("no command")
	case rest[0] == "version":
		return cli.PrintVersion(e.stdout, "ringkv", false)
	case e.cores < 1 || e.cores > 1024:
		return cli.Usagef("--cores %d: want 1 to 1024", e.cores)
	}
	for _, c := range commands {
		if c.name == rest[0] {
			if n := len(rest) - 1; n < c.least || n > c.most {
				return cli.Usagef("usage: ringkv [flags] %s%s", c.name, c.args)
			}
			return c.run(ctx, e, rest[1:])
		}
	}
	return cli.Usagef("no command %q", rest[0])
}

func (e *env) help(fs *flag.FlagSet) {
	fmt.Fprint(e.stdout, "ringkv: a durable key-value store, an example of a server on this library\n\nusage: ringkv [flags] COMMAND\n\n")
	for _, c := range commands {
		fmt.Fprintf(e.stdout, "  %-24s %s\n", c.name+c.args, c.help)
	}
	fmt.Fprintf(e.stdout, "  %-24s %s\n\nflags:\n", "version", "what this program was built from")
	cli.PrintFlags(e.stdout, fs)
	fmt.Fprint(e.stdout, "\nExit status: 0 done, 1 failed, 2 called wrongly.\n")
}
