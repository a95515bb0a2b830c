package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
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

// Program is a program of several commands that share their flags.
type Program struct {
	Name, About string // About is one line without a full stop
	Flags       *flag.FlagSet
	Commands    []Command           // beside version and completion, which every program has
	Values      map[string][]string // what values of flags can be, as Complete has it
}

// Command is one of the verbs of a Program.
type Command struct {
	Name string
	Args string // such as ADDRESS KEY; the last may be [ONE] or MANY...
	Help string // one line
	Run  func(ctx context.Context, args []string) error
}

// Run is the whole program: it parses flags, runs the command, says what is wrong, and
// returns the exit status.
func (p *Program) Run(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	err := p.execute(ctx, stdout, args)
	switch {
	case err == nil:
		return OK
	case IsUsage(err):
		fmt.Fprintf(stderr, "%s: %v\nrun '%s -h' for help\n", p.Name, err, p.Name)
		return Usage
	}
	fmt.Fprintf(stderr, "%s: %s\n", p.Name, OneLine(err))
	return Failed
}

func (p *Program) execute(ctx context.Context, stdout io.Writer, args []string) error {
	version := p.Flags.Bool("version", false, "the same as the command")
	commands := slices.Clone(p.Commands)
	commands = append(commands, Command{"version", "", "what this program was built from", func(context.Context, []string) error {
		return PrintVersion(stdout, p.Name, false)
	}}, Command{"completion", "SHELL", "have the shell complete commands and flags: bash, zsh or fish", func(_ context.Context, args []string) error {
		return p.complete(stdout, args[0], commands)
	}})
	rest, err := Parse(p.Flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		p.help(stdout, commands)
		return nil
	case err != nil:
		return err
	case *version:
		rest = []string{"version"}
	case len(rest) == 0:
		return Usagef("no command")
	}
	for _, c := range commands {
		if c.Name != rest[0] {
			continue
		}
		if !c.takes(len(rest) - 1) {
			return Usagef("usage: %s [flags] %s", p.Name, c.usage())
		}
		return c.Run(ctx, rest[1:])
	}
	return Usagef("no command %q", rest[0])
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

// complete writes the script for a shell.
func (p *Program) complete(w io.Writer, shell string, commands []Command) error {
	var verbs []Verb
	for _, c := range commands {
		v := Verb{Name: c.Name, Summary: c.Help, Flags: p.Flags}
		if c.Name == "completion" {
			v.Args = Shells
		}
		verbs = append(verbs, v)
	}
	return Complete(w, shell, p.Name, verbs, p.Values)
}

func (p *Program) help(w io.Writer, commands []Command) {
	fmt.Fprintf(w, "%s: %s\n\nusage: %s [flags] COMMAND ...\n\n", p.Name, p.About, p.Name)
	for _, c := range commands {
		fmt.Fprintf(w, "  %-24s %s\n", c.usage(), c.Help)
	}
	fmt.Fprint(w, "\nflags:\n")
	PrintFlags(w, p.Flags)
	fmt.Fprint(w, "\nExit status: 0 done, 1 failed, 2 called wrongly.\n")
}

// GrowProcs gives the Go scheduler two threads beside those that the cores of a messenger
// block, unless the user has decided about it.
func GrowProcs(cores int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < cores+2 {
		runtime.GOMAXPROCS(cores + 2)
	}
}
