package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
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

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	err := execute(ctx, e, args)
	switch {
	case err == nil:
		return cli.OK
	case cli.IsUsage(err):
		fmt.Fprintf(e.stderr, "cephclient: %v\nrun 'cephclient -h' for help\n", err)
		return cli.Usage
	default:
		fmt.Fprintf(e.stderr, "cephclient: %v\n", cli.OneLine(err))
		return cli.Failed
	}
}

func execute(ctx context.Context, e env, args []string) (err error) {
	fs := cli.NewFlags("cephclient")
	var o options
	o.register(fs)
	rest, err := cli.Parse(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		printHelp(e.stdout, fs)
		return nil
	}
	if err != nil {
		return err
	}
	if len(rest) == 1 && rest[0] == "version" {
		return cli.PrintVersion(e.stdout, "cephclient", false)
	}
	if len(rest) == 2 && rest[0] == "completion" {
		return complete(e.stdout, fs, rest[1])
	}
	verb, err := pick(rest)
	if err != nil {
		return err
	}
	if err := flags.Timeout(o.timeout); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	cfg, err := o.config(ctx, e.stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	c, err := rados.Dial(ctx, cfg)
	cfg.Key.Wipe()
	if err != nil {
		return o.explain(err)
	}
	err = verb.run(ctx, e, c, rest[1:])
	return errors.Join(o.explain(err), c.Close())
}

// pick finds the command and checks the number of its arguments.
func pick(args []string) (command, error) {
	if len(args) == 0 {
		return command{}, cli.Usagef("no command")
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		if len(args)-1 != len(c.args) {
			return command{}, cli.Usagef("usage: %s", c.usage())
		}
		return c, nil
	}
	return command{}, cli.Usagef("no command %q", args[0])
}

func (c *command) usage() string {
	return strings.Join(append([]string{"cephclient [flags]", c.name}, c.args...), " ")
}

// complete writes the script for a shell.
func complete(w io.Writer, fs *flag.FlagSet, shell string) error {
	verbs := []cli.Verb{{Name: "version", Summary: "what this program was built from", Flags: fs}, {Name: "completion", Flags: fs, Args: cli.Shells}}
	for _, c := range commands() {
		verbs = append(verbs, cli.Verb{Name: c.name, Summary: c.help, Flags: fs})
	}
	return cli.Complete(w, shell, "cephclient", verbs, map[string][]string{
		"ENGINE": {"auto", "io_uring", "epoll"}, "LEVEL": {"debug", "info", "warn", "error", "off"}, "LIST": {"crc", "secure", "secure,crc"},
		"METHOD": {"none", "snappy", "zlib", "zstd", "lz4"}, "REVISION": {"0", "1"},
	})
}

func printHelp(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprint(w, "cephclient: a small client of a Ceph cluster\n\nusage: cephclient [flags] COMMAND ...\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-24s %s\n", strings.Join(append([]string{c.name}, c.args...), " "), c.help)
	}
	fmt.Fprintf(w, "  %-24s %s\n", "version", "what this program was built from")
	fmt.Fprintf(w, "  %-24s %s\n", "completion SHELL", "have the shell complete commands and flags: bash, zsh or fish")
	fmt.Fprint(w, "\nflags:\n")
	cli.PrintFlags(w, fs)
	fmt.Fprint(w, "\nExit status: 0 done, 1 failed, 2 called wrongly.\n")
}
