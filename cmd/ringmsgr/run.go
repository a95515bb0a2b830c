package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
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
	json    string // shape of its JSON; empty: it has no flags
	example string
	// setup registers the command's flags and returns what runs it.
	setup func(fs *flag.FlagSet) runner
}

// runner runs a command whose flags are parsed. A [cli.UsageError] is the caller's
// fault, any other error was reported already.
type runner func(ctx context.Context, e env, args []string) error

// errReported is the failure of a command that has said why.
var errReported = errors.New("failed")

func commands() []command {
	return []command{pingCommand(), serveCommand(), sendCommand(), topCommand(), decodeCommand(), doctorCommand(), versionCommand(), completionCommand()}
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	if len(args) == 0 {
		printCommands(e.stderr)
		return cli.Usage
	}
	switch args[0] {
	case "-h", "-help", "--help":
		printCommands(e.stdout)
		return cli.OK
	case "help":
		return help(e, args[1:])
	case "-version", "--version":
		args[0] = "version"
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, e, args[1:])
		}
	}
	fmt.Fprintf(e.stderr, "ringmsgr: no command %q%s; run 'ringmsgr -h'\n", args[0], cli.Nearest(args[0], "", helpNames()))
	return cli.Usage
}

func (c *command) run(ctx context.Context, e env, args []string) int {
	fs := cli.NewFlags(c.name)
	runCommand := c.setup(fs)
	rest, err := cli.Parse(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		c.printHelp(e.stdout, fs)
		return cli.OK
	}
	if err == nil {
		err = runCommand(ctx, e, rest)
	}
	switch {
	case err == nil:
		return cli.OK
	case cli.IsUsage(err):
		fmt.Fprintf(e.stderr, "ringmsgr %s: %v\nrun 'ringmsgr %s -h' for help\n", c.name, cli.OneLine(err), c.name)
		return cli.Usage
	case !errors.Is(err, errReported):
		fmt.Fprintf(e.stderr, "ringmsgr %s: %v\n", c.name, cli.OneLine(err))
	}
	return cli.Failed
}

func printCommands(w io.Writer) {
	fmt.Fprint(w, "ringmsgr: a messenger for the Ceph protocols msgr2 and msgr1\n\nusage:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  ringmsgr %-22s %s\n", c.name+" "+c.args, c.summary)
	}
	fmt.Fprint(w, "\nmore:\n")
	printTopics(w)
	fmt.Fprint(w, "\nEvery command has -h, and all but completion have --json.\nExit status: 0 done, 1 failed, 2 called wrongly.\n")
}

func (c *command) printHelp(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprintf(w, "usage: ringmsgr %s %s\n\n%s\n\nexample:\n  %s\n\n", c.name, c.args, strings.TrimSpace(c.help), c.example)
	if c.json == "" {
		return // it has no flags
	}
	fmt.Fprintf(w, "With --json, one object per line:\n%s\n\nflags:\n", indent(c.json))
	cli.PrintFlags(w, fs)
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}
