package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	Name, About string         // About is one line without a full stop
	Flags       *pflag.FlagSet // of all commands; nil: each has its own
	Commands    []Command
	// Letters are short names of flags, by their long names.
	Letters map[string]string
}

// Command is one of the verbs of a Program.
type Command struct {
	Name string
	Args string // for example ADDRESS KEY; the last may be [ONE] or MANY...
	Help string // one line
	// Text is the long help, and Example a call. They and Flags are for a program whose
	// commands have flags of their own.
	Text, Example string
	Flags         *pflag.FlagSet
	// Given are arguments from flags, before the arguments of the call; nil: none.
	Given func() []string
	Run   func(ctx context.Context, args []string) error
}

// ErrReported is the error of a command that has told the user about its failure.
var ErrReported = errors.New("failed")

// Run is the whole program: it parses flags, runs the command, prints its error, and returns
// the exit status.
func (p *Program) Run(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	root := p.root(stdout, stderr)
	root.SetArgs(append([]string{}, args...)) // nil would stand for the arguments of the process
	c, err := root.ExecuteContextC(ctx)
	return Status(stderr, c.CommandPath(), err)
}

// Status is the exit status of a program, or of a command, that ended with err. It writes the
// error to stderr, in one line.
func Status(stderr io.Writer, name string, err error) int {
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

// root is the program as its library has it.
func (p *Program) root(stdout, stderr io.Writer) *cobra.Command {
	var root *cobra.Command
	var names []string
	unknown := func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef("no command")
		}
		return Usagef("no command %q%s", args[0], Nearest(args[0], "", names))
	}
	root = &cobra.Command{
		Use: p.Name, Long: p.Name + ": " + p.About + "\n\nExit status: 0 done, 1 failed, 2 called wrongly.",
		Version: ReadBuild().String(), SilenceErrors: true, SilenceUsage: true, Args: unknown, RunE: unknown,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	// Lines have a width, and the list of commands has their arguments.
	lines := strings.NewReplacer(".FlagUsages", fmt.Sprint(".FlagUsagesWrapped ", Width), "rpad .Name .NamePadding", "rpad .Use 24")
	root.SetUsageTemplate(lines.Replace(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return reworded(c.Flags(), err) })
	if p.Flags != nil {
		p.flags(root, root.PersistentFlags(), p.Flags)
	}
	for _, c := range p.Commands {
		names = append(names, c.Name)
		root.AddCommand(p.cobra(c))
	}
	names = append(names, "version")
	root.AddCommand(p.cobra(version(p.Name, stdout)))
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "this text, or that of a command", ValidArgs: names,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if len(rest) > 0 || err != nil {
				return unknown(root, args)
			}
			c.InitDefaultHelpFlag()
			c.InitDefaultVersionFlag()
			return c.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(*cobra.Command, []string) error { return Usagef("want one shell: bash, zsh, fish or powershell") }
	}
	return root
}

// version is the command that every program has.
func version(program string, stdout io.Writer) Command {
	fs := NewFlags("version")
	asJSON := fs.Bool("json", false, "write JSON")
	return Command{
		Name: "version", Help: "the sources of this program", Flags: fs, Example: "  " + program + " version --json",
		Text: `Prints the version of the module, the commit if it is known, and the Go toolchain.

With --json, one object per line:
  {"version":"...","commit":"...","modified":false,"go":"...","platform":"linux/amd64"}`,
		Run: func(context.Context, []string) error { return PrintVersion(stdout, program, *asJSON) },
	}
}

// cobra is a command as the library has it.
func (p *Program) cobra(c Command) *cobra.Command {
	all := func(args []string) []string {
		if c.Given == nil {
			return args
		}
		return slices.Concat(c.Given(), args)
	}
	cmd := &cobra.Command{
		Use: strings.TrimSpace(c.Name + " " + c.Args), Short: c.Help, Long: strings.TrimSpace(c.Text), Example: c.Example,
		Args: func(cmd *cobra.Command, args []string) error {
			if !c.takes(len(all(args))) {
				return Usagef("usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.Run(cmd.Context(), all(args)) },
	}
	if c.Flags != nil {
		p.flags(cmd, cmd.Flags(), c.Flags)
	}
	return cmd
}

// flags gives a command flags, and completes their values. FILE, PATH, DIR and DIRECTORY are files.
func (p *Program) flags(c *cobra.Command, to, from *pflag.FlagSet) {
	from.VisitAll(func(f *pflag.Flag) { f.Shorthand = p.Letters[f.Name] })
	to.AddFlagSet(from)
	from.VisitAll(func(f *pflag.Flag) {
		switch value, _ := pflag.UnquoteUsage(f); value {
		case "FILE", "PATH", "DIR", "DIRECTORY": // as the shell does it
		default:
			var hints []string
			if v, ok := f.Value.(interface{ Hints() []string }); ok {
				hints = v.Hints()
			}
			complete := cobra.FixedCompletions(hints, cobra.ShellCompDirectiveNoFileComp)
			_ = c.RegisterFlagCompletionFunc(f.Name, complete) // it has none yet
		}
	})
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

// GrowProcs gives the Go scheduler two threads beside the threads of the cores, unless the user
// has set their number.
func GrowProcs(cores int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < cores+2 {
		runtime.GOMAXPROCS(cores + 2)
	}
}
