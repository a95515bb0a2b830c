package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// env is what the program gets from its surroundings.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
	// procs makes sure that the Go scheduler has room for the threads of so
	// many cores; nil leaves it alone.
	procs func(cores int)
}

// The exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

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

// runner runs a command whose flags are parsed. A *usageError is the caller's
// fault, any other error was reported already.
type runner func(ctx context.Context, e env, args []string) error

// usageError says that the program was called wrongly.
type usageError struct{ err error }

func (u *usageError) Error() string { return u.err.Error() }

func (u *usageError) Unwrap() error { return u.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errReported is the failure of a command that has said why.
var errReported = errors.New("failed")

func commands() []command {
	return []command{pingCommand(), serveCommand(), sendCommand(), topCommand(), doctorCommand()}
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	if len(args) == 0 {
		printCommands(e.stderr)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		printCommands(e.stdout)
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, e, args[1:])
		}
	}
	fmt.Fprintf(e.stderr, "ringmsgr: no command %q; run 'ringmsgr -h'\n", args[0])
	return exitUsage
}

func (c *command) run(ctx context.Context, e env, args []string) int {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	runCommand := c.setup(fs)
	rest, err := parse(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		c.printHelp(e.stdout, fs)
		return exitOK
	}
	if err != nil {
		err = &usageError{err}
	} else {
		err = runCommand(ctx, e, rest)
	}
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(e.stderr, "ringmsgr %s: %v\nrun 'ringmsgr %s -h' for help\n", c.name, oneLine(err), c.name)
		return exitUsage
	case !errors.Is(err, errReported):
		fmt.Fprintf(e.stderr, "ringmsgr %s: %v\n", c.name, oneLine(err))
	}
	return exitFailed
}

// parse parses flags that may stand before and behind other arguments, which
// it returns. Behind "--" there are no flags.
func parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		left := fs.Args()
		if len(left) == 0 {
			return rest, nil
		}
		if taken := len(args) - len(left); taken > 0 && args[taken-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

func printCommands(w io.Writer) {
	fmt.Fprint(w, "ringmsgr: a messenger for the Ceph protocol msgr2\n\nusage:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  ringmsgr %-22s %s\n", c.name+" "+c.args, c.summary)
	}
	fmt.Fprint(w, "\nEvery command has --json and -h. Exit status: 0 done, 1 failed, 2 called wrongly.\n")
}

func (c *command) printHelp(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprintf(w, "usage: ringmsgr %s %s\n\n%s\n\nexample:\n  %s\n\n", c.name, c.args, strings.TrimSpace(c.help), c.example)
	fmt.Fprintf(w, "With --json, one object per line:\n%s\n\nflags:\n", indent(c.json))
	fs.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		switch f.DefValue {
		case "", "false", "0", "0s":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %-21s %s\n", strings.TrimSpace("--"+f.Name+" "+value), usage)
	})
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}

// oneLine joins the lines of a joined error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// growProcs gives the Go scheduler two threads beside those that the cores
// block, unless the user has decided about it.
func growProcs(cores int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < cores+2 {
		runtime.GOMAXPROCS(cores + 2)
	}
}
