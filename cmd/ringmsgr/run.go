package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// env are the inputs and outputs of the program.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// lookup finds the addresses of a host; nil: as the system does.
	lookup scope.Lookup
}

func commands(e env) []*cobra.Command {
	return []*cobra.Command{pingCommand(e), serveCommand(e), sendCommand(e), topCommand(e), decodeCommand(e), doctorCommand(e)}
}

// shapes is the part of a help text about the JSON of a command.
func shapes(json string) string {
	return "\n\nWith --json, one object per line:\n  " + strings.ReplaceAll(json, "\n", "\n  ")
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	e.stdout = cli.NewOutput(e.stdout)
	root := &cobra.Command{Use: "ringmsgr", Short: "a messenger for the Ceph protocols msgr2 and msgr1"}
	root.AddCommand(commands(e)...)
	return cli.Run(ctx, root, e.stdout, e.stderr, args)
}

func main() {
	cli.Main(func(ctx context.Context, args []string) int {
		return run(ctx, env{os.Stdin, os.Stdout, os.Stderr, nil}, args)
	})
}

// report is the result of a command: it is written as JSON, or for people.
type report interface{ print(w io.Writer) }

// show writes the result of a command to standard output.
func (o *machineOptions) show(e env, r report) error {
	if o.json {
		return cli.WriteJSON(e.stdout, r)
	}
	r.print(e.stdout)
	_, err := e.stdout.Write(nil) // cli.Output: the first error there was
	return err
}

// table is a report for people: a name and a text in each row.
type table struct{ w io.Writer }

func (t *table) row(name, format string, args ...any) {
	fmt.Fprintf(t.w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
}

// latency is a row of durations; nil: there are none.
func (t *table) latency(name string, s *cli.Summary, more string) {
	if s == nil {
		t.row(name, "not known, no echo came")
		return
	}
	t.row(name, "min %s, mean %s, p50 %s, p90 %s, p99 %s, p99.9 %s, max %s%s", cli.Micros(s.Min), cli.Micros(s.Mean),
		cli.Micros(s.P50), cli.Micros(s.P90), cli.Micros(s.P99), cli.Micros(s.P999), cli.Micros(s.Max), more)
}

func round(v float64, n int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow10(n)
	return math.Round(v*p) / p
}

// fail reports a failure, and returns ErrReported.
func fail(e env, name string, asJSON bool, f failure) error {
	if asJSON {
		return cmp.Or(cli.WriteJSON(e.stdout, f), cli.ErrReported)
	}
	fmt.Fprintf(e.stderr, "ringmsgr %s: %s: %s\n", name, f.Stage, f.Error)
	return cli.ErrReported
}
