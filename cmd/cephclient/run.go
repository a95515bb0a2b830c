package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// command is one of the program's verbs.
type command struct {
	name string
	args []string // their names; the last one may begin with "["
	help string
	run  func(ctx context.Context, e env, c *rados.Cluster, args []string) error
}

func commands() []command {
	return []command{
		{"status", nil, "the cluster's status, as JSON", status},
		{"monmap", nil, "the monitors", monmap},
		{"osdmap", nil, "the epoch of the osdmap and its size", osdmap},
		{"put", []string{"POOL", "OBJECT", "FILE"}, "write an object; - is standard input", put},
		{"get", []string{"POOL", "OBJECT", "FILE"}, "read an object; - is standard output", get},
		{"stat", []string{"POOL", "OBJECT"}, "size and time of an object", stat},
		{"rm", []string{"POOL", "OBJECT"}, "remove an object", remove},
	}
}

// usageError says that the program was called wrongly.
type usageError struct{ err error }

func (u *usageError) Error() string { return u.err.Error() }

func (u *usageError) Unwrap() error { return u.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	err := execute(ctx, e, args)
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(e.stderr, "cephclient: %v\nrun 'cephclient -h' for help\n", err)
		return exitUsage
	default:
		fmt.Fprintf(e.stderr, "cephclient: %v\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return exitFailed
	}
}

func execute(ctx context.Context, e env, args []string) error {
	fs := flag.NewFlagSet("cephclient", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	var o options
	o.register(fs)
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		printHelp(e.stdout, fs)
		return nil
	}
	if err != nil {
		return &usageError{err}
	}
	verb, err := pick(fs.Args())
	if err != nil {
		return err
	}
	cfg, err := o.config(e.stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c, err := rados.Dial(ctx, cfg)
	cfg.Key.Wipe()
	if err != nil {
		return o.explain(err)
	}
	err = verb.run(ctx, e, c, fs.Args()[1:])
	return errors.Join(err, c.Close())
}

// explain adds what to do about an error of the authentication.
func (o *options) explain(err error) error {
	switch {
	case !errors.Is(err, control.ErrAuth):
		return err
	case o.keyring == "" && errors.Is(err, auth.ErrNoMethod):
		return fmt.Errorf("the cluster wants a key, give --keyring: %w", err)
	case errors.Is(err, auth.ErrNoMethod):
		return fmt.Errorf("the cluster has no cephx, leave out --keyring: %w", err)
	case errors.Is(err, auth.ErrNoMode):
		return fmt.Errorf("the cluster does not allow the modes of --mode: %w", err)
	case errors.Is(err, &auth.Refused{Errno: auth.EACCES}):
		return fmt.Errorf("the cluster does not know %s with the key in %s: %w", o.name, o.keyring, err)
	}
	return err
}

// pick finds the command and checks the number of its arguments.
func pick(args []string) (command, error) {
	if len(args) == 0 {
		return command{}, usagef("no command")
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		if len(args)-1 != len(c.args) {
			return command{}, usagef("usage: %s", c.usage())
		}
		return c, nil
	}
	return command{}, usagef("no command %q", args[0])
}

func (c *command) usage() string {
	return strings.Join(append([]string{"cephclient [flags]", c.name}, c.args...), " ")
}

func printHelp(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprint(w, "cephclient: a small client of a Ceph cluster\n\nusage: cephclient [flags] COMMAND ...\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-24s %s\n", strings.Join(append([]string{c.name}, c.args...), " "), c.help)
	}
	fmt.Fprint(w, "\nflags:\n")
	fs.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  %-24s %s\n", strings.TrimSpace("--"+f.Name+" "+value), usage)
	})
	fmt.Fprint(w, "\nExit status: 0 done, 1 failed, 2 called wrongly.\n")
}
