package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// Main is the main of a program: it calls run with the arguments, and exits with the status
// that run returns. ctx ends with SIGINT or SIGTERM; a second one kills.
func Main(run func(ctx context.Context, args []string) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:]))
}

// Program is a program of several commands. Beside its own it has version, completion and
// help.
type Program struct {
	Name, About string        // About is one line without a full stop
	Flags       *flag.FlagSet // those of all commands; nil: each has its own
	Commands    []Command
	// Values are what the value of a flag can be, by the word in capitals that stands for it,
	// for the completion of arguments. FILE, PATH, DIR and DIRECTORY are files.
	Values map[string][]string
}

// Command is one of the verbs of a Program.
type Command struct {
	Name string
	Args string // such as ADDRESS KEY; the last may be [ONE] or MANY...
	Help string // one line
	// Text is what "COMMAND -h" says at length. It and Flags are for a program whose commands
	// have flags of their own.
	Text  string
	Flags *flag.FlagSet
	Run   func(ctx context.Context, args []string) error
}

// ErrReported is the error of a command that has told the user about its failure.
var ErrReported = errors.New("failed")

// Run is the whole program: it parses flags, runs the command, says what is wrong, and
// returns the exit status.
func (p *Program) Run(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	name, err := p.execute(ctx, stdout, args)
	switch {
	case err == nil:
		return OK
	case IsUsage(err):
		fmt.Fprintf(stderr, "%s: %s\nrun '%s -h' for help\n", name, OneLine(err), name)
		return Usage
	case !errors.Is(err, ErrReported):
		fmt.Fprintf(stderr, "%s: %s\n", name, OneLine(err))
	}
	return Failed
}

// execute returns the name under which errors are told, too.
func (p *Program) execute(ctx context.Context, stdout io.Writer, args []string) (name string, err error) {
	flags := p.Flags
	if flags == nil {
		if len(args) > 0 { // its flags are those behind its name
			if c := p.command(args[0]); c != nil && c.Flags != nil {
				return p.Name + " " + c.Name, p.alone(ctx, stdout, c, args[1:])
			}
		}
		flags = NewFlags(p.Name)
	}
	version := flags.Lookup("version") == nil && len(args) == 1 && (args[0] == "--version" || args[0] == "-version")
	rest, err := Parse(flags, args)
	switch {
	case version:
		return p.Name, PrintVersion(stdout, p.Name, false)
	case errors.Is(err, flag.ErrHelp):
		p.help(stdout)
		return p.Name, nil
	case err != nil:
		return p.Name, err
	case len(rest) == 0:
		return p.Name, Usagef("no command")
	}
	if c := p.command(rest[0]); c != nil {
		if !c.takes(len(rest) - 1) {
			return p.Name, Usagef("usage: %s [flags] %s", p.Name, c.usage())
		}
		return p.Name, c.Run(ctx, rest[1:])
	}
	return p.Name, p.builtin(ctx, stdout, rest[0], rest[1:])
}

// alone runs a command with flags of its own.
func (p *Program) alone(ctx context.Context, stdout io.Writer, c *Command, args []string) error {
	rest, err := Parse(c.Flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		p.helpOf(stdout, c)
		return nil
	case err != nil:
		return err
	}
	return c.Run(ctx, rest)
}

// builtin runs a command that every program has.
func (p *Program) builtin(_ context.Context, stdout io.Writer, name string, args []string) error {
	switch {
	case name == "version" && len(args) == 0:
		return PrintVersion(stdout, p.Name, false)
	case name == "completion" && len(args) == 1:
		return p.complete(stdout, args[0])
	case name == "completion":
		return Usagef("want one shell: %s", strings.Join(Shells, ", "))
	case name == "help" && len(args) == 0:
		p.help(stdout)
		return nil
	case name == "help" && p.command(args[0]) != nil:
		p.helpOf(stdout, p.command(args[0]))
		return nil
	case name == "help":
		name = args[0]
	}
	return Usagef("no command %q%s", name, Nearest(name, "", p.names()))
}

func (p *Program) command(name string) *Command {
	for i := range p.Commands {
		if p.Commands[i].Name == name {
			return &p.Commands[i]
		}
	}
	return nil
}

func (p *Program) names() (all []string) {
	for _, v := range p.verbs() {
		all = append(all, v.Name)
	}
	return all
}

// takes says whether the command has n arguments.
func (c *Command) takes(n int) bool {
	want := len(strings.Fields(c.Args))
	switch {
	case strings.HasSuffix(c.Args, "..."):
		return n >= want
	case strings.HasSuffix(c.Args, "]"):
		return n == want || n == want-1
	}
	return n == want
}

func (c *Command) usage() string { return strings.TrimSpace(c.Name + " " + c.Args) }

func (p *Program) help(w io.Writer) {
	flags := " [flags]"
	if p.Flags == nil {
		flags = ""
	}
	fmt.Fprintf(w, "%s: %s\n\nusage: %s%s COMMAND ...\n\n", p.Name, p.About, p.Name, flags)
	for _, v := range p.verbs() {
		fmt.Fprintf(w, "  %-24s %s\n", v.usage(), v.Help)
	}
	if p.Flags == nil {
		fmt.Fprint(w, "\nEvery command has -h.\n")
	} else {
		fmt.Fprint(w, "\nflags:\n")
		PrintFlags(w, p.Flags)
	}
	fmt.Fprint(w, "\nExit status: 0 done, 1 failed, 2 called wrongly.\n")
}

func (p *Program) helpOf(w io.Writer, c *Command) {
	fmt.Fprintf(w, "usage: %s %s\n\n%s\n", p.Name, c.usage(), strings.TrimSpace(cmp.Or(c.Text, c.Help)))
	if c.Flags != nil {
		fmt.Fprint(w, "\nflags:\n")
		PrintFlags(w, c.Flags)
	}
}

// GrowProcs gives the Go scheduler two threads beside those that the cores of a messenger
// block, unless the user has decided about it.
func GrowProcs(cores int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < cores+2 {
		runtime.GOMAXPROCS(cores + 2)
	}
}
