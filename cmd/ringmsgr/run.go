package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
)

// env is what the program gets from its surroundings.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	// procs makes sure that the Go scheduler has room for the threads of so
	// many cores; nil leaves it alone.
	procs func(cores int)
	// lookup finds the addresses of a host; nil: as the system does.
	lookup address.Lookup
}

// command is one of the program's verbs.
type command struct {
	name    string
	args    string // of the usage line
	summary string // one line, for the list
	help    string // what it does, at length
	json    string // shape of its JSON
	example string
	// setup registers the command's flags and returns what runs it.
	setup func(fs *flag.FlagSet) runner
}

// runner runs a command whose flags are parsed. A [cli.UsageError] is the caller's
// fault, cli.ErrReported was reported already.
type runner func(ctx context.Context, e env, args []string) error

func commands() []command {
	return []command{pingCommand(), serveCommand(), sendCommand(), topCommand(), decodeCommand(), doctorCommand(), versionCommand()}
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	p := cli.Program{Name: "ringmsgr", About: "a messenger for the Ceph protocols msgr2 and msgr1", Values: map[string][]string{
		"ENGINE": flags.Backends, "METHOD": {"none", "cephx"}, "METHODS": {"snappy", "zlib", "zstd", "lz4"},
		"LEVEL": flags.Levels, "LIST": {"crc", "secure", "secure,crc"},
		"POLICY": control.PolicyNames(), "REVISION": {"0", "1"}, "RULES": {"auto", "none", "cpu", "hint", "table"},
		"ORDER": {"rate", "bytes", "queue", "lag", "core", "peer", "id"},
	}}
	for _, c := range commands() {
		fs := cli.NewFlags(c.name)
		run := c.setup(fs)
		p.Commands = append(p.Commands, cli.Command{
			Name: c.name, Args: c.args, Help: c.summary, Flags: fs,
			Text: fmt.Sprintf("%s\n\nexample:\n  %s\n\nWith --json, one object per line:\n  %s", strings.TrimSpace(c.help), c.example, strings.ReplaceAll(c.json, "\n", "\n  ")),
			Run:  func(ctx context.Context, args []string) error { return run(ctx, e, args) },
		})
	}
	return p.Run(ctx, e.stdout, e.stderr, args)
}

func versionCommand() command {
	return command{
		name: "version", args: "[flags]", summary: "what this program was built from",
		help:    "Prints the version of the module, the commit if it is known, and the Go toolchain.",
		example: "ringmsgr version --json",
		json:    `{"version":"...","commit":"...","modified":false,"go":"...","platform":"linux/amd64"}`,
		setup: func(fs *flag.FlagSet) runner {
			asJSON := fs.Bool("json", false, "write JSON")
			return func(_ context.Context, e env, args []string) error {
				if len(args) > 0 {
					return cli.Usagef("unexpected argument %q", args[0])
				}
				return cli.PrintVersion(e.stdout, "ringmsgr", *asJSON)
			}
		},
	}
}

func main() {
	cli.Main(func(ctx context.Context, args []string) int {
		return run(ctx, env{os.Stdin, os.Stdout, os.Stderr, time.Now, cli.GrowProcs, nil}, args)
	})
}

// table is a report for people: a name and what there is to say about it.
type table struct{ w io.Writer }

func (t *table) row(name, format string, args ...any) {
	fmt.Fprintf(t.w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
}

// micros is a duration in microseconds, to a tenth.
type micros float64

func toMicros(d time.Duration) micros {
	return micros(math.Round(float64(d)/100) / 10)
}

func (m micros) String() string { return cli.Micros(float64(m)) }

// round keeps n decimals.
func round(v float64, n int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow10(n)
	return math.Round(v*p) / p
}

// fail reports a failure and returns the error that says so.
func fail(e env, name string, asJSON bool, f failure) error {
	if asJSON {
		if err := cli.WriteJSON(e.stdout, f); err != nil {
			return err
		}
		return cli.ErrReported
	}
	fmt.Fprintf(e.stderr, "ringmsgr %s: %s: %s\n", name, f.Stage, f.Error)
	return cli.ErrReported
}
