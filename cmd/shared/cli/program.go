package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Main is the main of a program: it calls run with the arguments, and exits with the status
// that run returns. ctx ends with SIGINT, SIGTERM or SIGHUP; a second SIGINT or SIGTERM kills. A
// program that is to ignore SIGHUP, as nohup says, goes on.
func Main(run func(ctx context.Context, args []string) int) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() {
		// A terminal that is closed sends two: its shell, and the kernel. The second one would kill
		// the program while signal.Ignore begins, so it is caught to the end, and not read.
		if !signal.Ignored(syscall.SIGHUP) {
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		}
		stop()
	})
	os.Exit(run(ctx, os.Args[1:]))
}

// Until is the result of f, or the cause of the end of ctx where f takes longer, as opening a pipe
// may. Then f goes on, and its result is dropped: the program is to end.
func Until[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	ended := make(chan result, 1)
	go func() { v, err := f(); ended <- result{v, err} }()
	select {
	case r := <-ended:
		return r.v, r.err
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// Input is an input of a program: a file, or stdin, if there is one, for the name "-". A read that waits ends with ctx,
// also where the file goes on to wait, as a pipe does when it is opened or read. From the call on, all
// of it is read.
func Input(ctx context.Context, name string, stdin io.Reader) io.Reader {
	in, out := io.Pipe()
	go func() {
		if name != "-" || stdin == nil {
			f, err := os.Open(name)
			if err != nil {
				_ = out.CloseWithError(err)
				return
			}
			defer f.Close()
			stdin = f
		}
		_, err := io.Copy(out, stdin)
		_ = out.CloseWithError(err) // nil stands for io.EOF
	}()
	context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	return in
}

// ErrReported is the error of a command that has told the user about its failure.
var ErrReported = errors.New("failed")

// Output is the standard output of a program. All writes after one that fails have its error, and the
// program fails with it in the end (Run): its commands need not look. Any goroutine may write.
type Output struct {
	w   io.Writer
	err atomic.Pointer[error]
}

// NewOutput makes the Output of w, which is w itself if it is one.
func NewOutput(w io.Writer) *Output {
	if o, ok := w.(*Output); ok {
		return o
	}
	return &Output{w: w}
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	if failed := o.err.Load(); failed != nil {
		return 0, *failed
	}
	n, err := o.w.Write(p)
	if err != nil {
		o.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Terminal is the size of the terminal that w is, if it is one.
func Terminal(w io.Writer) (width, height int, ok bool) {
	if o, ok := w.(*Output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	if size.Col == 0 || size.Row == 0 {
		return 80, 24, true
	}
	return int(size.Col), int(size.Row), true
}

// Run is a whole program, of one command or of several below root: it parses flags, runs the
// command, prints its error in one line, and returns the exit status. Beside its own commands a program has
// version, completion and help.
//
// Use of a command names its arguments, for example "get ADDRESS KEY"; the last may be [ONE] or
// MANY... . Short of root is one line without a full stop.
func Run(ctx context.Context, root *cobra.Command, stdout, stderr io.Writer, args []string) int {
	out := NewOutput(stdout)
	finish(root, out, stderr)
	root.SetArgs(append([]string{}, args...)) // nil would stand for the arguments of the process
	c, err := root.ExecuteContextC(ctx)
	if lost := out.err.Load(); lost != nil && err == nil {
		err = *lost
	}
	switch name := c.CommandPath(); {
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

// finish adds what all programs have.
func finish(root *cobra.Command, stdout, stderr io.Writer) {
	root.AddCommand(version(root.Name(), stdout))
	var names []string
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if names = append(names, c.Name()); c.Args == nil {
			c.Args = Arguments
		}
		complete(c, c.Flags())
		complete(c, c.PersistentFlags())
	}
	names = names[1:] // without root
	unknown := func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef("no command")
		}
		return Usagef("no command %q%s", args[0], Nearest(args[0], "", names))
	}
	if !root.Runnable() {
		root.Args, root.RunE = unknown, unknown
	}
	root.Long = cmp.Or(root.Long, root.Name()+": "+root.Short) + "\n\nExit status: 0 done, 1 failed, 2 called wrongly."
	root.Version, root.SilenceErrors, root.SilenceUsage = ReadBuild().String(), true, true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	// Lines have a width, and the list of commands has their arguments.
	lines := strings.NewReplacer(".FlagUsages", fmt.Sprint(".FlagUsagesWrapped ", Width), "rpad .Name .NamePadding", "rpad .Use 24")
	root.SetUsageTemplate(lines.Replace(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return reworded(c.Flags(), err) })
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
}

// version is the command that every program has.
func version(program string, stdout io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "the sources of this program", Example: "  " + program + " version --json",
		Long: `Prints the version of the module, the commit if it is known, and the Go toolchain.

With --json, one object per line:
  {"version":"...","commit":"...","modified":false,"go":"...","platform":"linux/amd64"}`,
	}
	asJSON := c.Flags().Bool("json", false, "write JSON")
	c.RunE = func(*cobra.Command, []string) error {
		if *asJSON {
			return WriteJSON(stdout, ReadBuild())
		}
		_, err := fmt.Fprintln(stdout, program, ReadBuild())
		return err
	}
	return c
}

// Arguments is an error unless a command gets as many arguments as its Use names.
func Arguments(c *cobra.Command, args []string) error {
	names := strings.Fields(c.Use)[1:]
	n, want, last := len(args), len(names), strings.Join(names, "")
	switch {
	case n == want, n > want && strings.HasSuffix(last, "..."), n == want-1 && strings.HasSuffix(last, "]"):
		return nil
	}
	return Usagef("usage: %s", c.UseLine())
}

// complete completes the values of flags. FILE, PATH, DIR and DIRECTORY are files.
func complete(c *cobra.Command, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		switch value, _ := pflag.UnquoteUsage(f); value {
		case "FILE", "PATH", "DIR", "DIRECTORY": // as the shell does it
		default:
			var hints []string
			if v, ok := f.Value.(interface{ Hints() []string }); ok {
				hints = v.Hints()
			}
			fixed := cobra.FixedCompletions(hints, cobra.ShellCompDirectiveNoFileComp)
			_ = c.RegisterFlagCompletionFunc(f.Name, fixed) // it has none yet
		}
	})
}

// GrowProcs gives the Go scheduler two threads beside the threads of the cores, unless the user
// has set their number.
func GrowProcs(cores int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < cores+2 {
		runtime.GOMAXPROCS(cores + 2)
	}
}
