// Command cephclient is a client of a Ceph cluster on package control/cluster/rados: it shows the state of the cluster, works
// on objects, their attributes, omaps, locks, watches and snapshots, and measures.
//
//	cephclient ls -p POOL                  where Ceph's own tools know the cluster
//	cephclient --mon v2:10.0.0.1:3300 --keyring admin.keyring put POOL OBJECT FILE
//
// It finds monitors and its key as those tools do: by ceph.conf, the DNS, keyrings, CEPH_CONF, CEPH_KEYRING and CEPH_ARGS. Without a
// key it connects with method none. Run it with -h for all of it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

func main() {
	cli.Main(func(ctx context.Context, args []string) int {
		e := env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, lookupSRV: net.DefaultResolver.LookupSRV}
		return run(ctx, e, args)
	})
}

// env are the inputs and outputs of the program, and its flags.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	lookupSRV      lookup
	options        *options
}

// verb is the function of a command.
type verb func(ctx context.Context, e env, c *rados.Cluster, args []string) error

// command is one of the program's verbs.
type command struct {
	name string
	args string // their names
	help string
	run  verb
	// long: it takes as long as its data does, and bounds its steps itself.
	long bool
}

func commands() []command {
	return []command{
		{name: "status", help: "the cluster's status, as JSON", run: ask("status")},
		{name: "monmap", help: "the monitors", run: monmap},
		{name: "osdmap", help: "the epoch of the osdmap and its size", run: osdmap},
		{name: "lspools", help: "the names of all pools", run: lspools},
		{name: "df", help: "how full the cluster and its pools are, as JSON", run: ask("df")},
		{name: "ls", args: "POOL", help: "the objects of a pool's namespace", run: onPool(list), long: true},
		{name: "put", args: "POOL OBJECT FILE", help: "write an object; - is standard input", run: onObject(put), long: true},
		{name: "get", args: "POOL OBJECT FILE", help: "read an object; - is standard output", run: onObject(get), long: true},
		{name: "append", args: "POOL OBJECT FILE", help: "write at its end; - is standard input", run: onObject(appendTo), long: true},
		{name: "truncate", args: "POOL OBJECT SIZE", help: "set the size of an object", run: onObject(truncate)},
		{name: "stat", args: "POOL OBJECT", help: "size and time of an object", run: onObject(stat)},
		{name: "rm", args: "POOL OBJECT...", help: "remove objects; - is a list on standard input", run: onPool(remove), long: true},
		{name: "xattr", args: "POOL OBJECT ACTION...", help: xattrs.help(), run: onObject(xattrs.run)},
		{name: "omap", args: "POOL OBJECT ACTION...", help: omaps.help(), run: onObject(omaps.run)},
		{name: "lock", args: "POOL OBJECT ACTION...", help: locks.help(), run: onObject(locks.run)},
		{name: "watch", args: "POOL OBJECT", help: "print each notification as JSON, until interrupted", run: onObject(watch), long: true},
		{name: "notify", args: "POOL OBJECT TEXT", help: "notify watchers, and print answers as JSON", run: onObject(notify), long: true},
		{name: "snap", args: "POOL ACTION...", help: snaps.help(), run: onPool(snaps.run)},
		{name: "bench", args: "POOL MODE", help: "measure: write, seq, rand; cleanup", run: onPool(bench), long: true},
	}
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	var o options
	e.stdout = cli.NewOutput(e.stdout)
	root := &cobra.Command{Use: "cephclient", Short: "a client of a Ceph cluster"}
	o.register(root.PersistentFlags(), e.getenv)
	for _, c := range commands() {
		all := func(args []string) []string {
			if strings.HasPrefix(c.args, "POOL") {
				return slices.Concat(o.pool, args)
			}
			return args
		}
		root.AddCommand(&cobra.Command{
			Use: strings.TrimSpace(c.name + " " + c.args), Short: c.help,
			Args: func(cmd *cobra.Command, args []string) error { return cli.Arguments(cmd, all(args)) },
			RunE: func(cmd *cobra.Command, args []string) error { return e.dialled(cmd.Context(), &o, c, all(args)) },
		})
	}
	return cli.Run(ctx, root, e.stdout, e.stderr, args)
}

// dialled runs a command with a connection to the cluster.
func (e env) dialled(ctx context.Context, o *options, verb command, args []string) (err error) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	cfg, err := o.config(ctx, e)
	if err != nil {
		return o.explain(err)
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	c, err := connect(ctx, cfg)
	if err != nil {
		return o.explain(err)
	}
	if verb.long {
		ctx = whole
	}
	e.options = o
	err = verb.run(ctx, e, c, args)
	return errors.Join(o.explain(err), c.Close())
}

// connect connects to the cluster, and wipes the key, of which the cluster has a copy.
func connect(ctx context.Context, cfg rados.Config) (*rados.Cluster, error) {
	defer cfg.Key.Wipe()
	return rados.Dial(ctx, cfg)
}

// ask makes a command of a question that monitors answer; that of df a manager brings them.
func ask(prefix string) verb {
	return func(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
		out, err := c.Mon().Command(ctx, map[string]any{"prefix": prefix, "format": "json-pretty"})
		if err == nil {
			fmt.Fprintf(e.stdout, "%s\n", bytes.TrimSpace(out.Data))
		}
		return err
	}
}

func monmap(_ context.Context, e env, c *rados.Cluster, _ []string) error {
	return printJSON(e.stdout, c.Mon().MonMap())
}

func osdmap(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	out, err := c.Mon().Command(ctx, map[string]any{"prefix": "osd getmap"})
	if err != nil {
		return err
	}
	var epoch uint32
	if _, err := fmt.Sscanf(out.Status, "got osdmap epoch %d", &epoch); err != nil {
		return fmt.Errorf("the monitor sends an osdmap and says %q: %w", out.Status, err)
	}
	return printJSON(e.stdout, map[string]any{"epoch": epoch, "bytes": len(out.Data)})
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
