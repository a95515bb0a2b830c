// Command cephclient is a client of a Ceph cluster, as an example of what can be built on package
// control/cluster/rados: it shows the state of the cluster, works on objects, their attributes, omaps, locks and
// snapshots, and measures.
//
//	cephclient --mon v2:10.0.0.1:3300 --keyring admin.keyring status
//	cephclient --mon v2:10.0.0.1:3300 --keyring admin.keyring put POOL OBJECT FILE
//
// It connects with cephx if it has a keyring, else with method none. Run it
// with -h for all of it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

func main() {
	cli.Main(func(ctx context.Context, args []string) int {
		return run(ctx, env{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}, args)
	})
}

// env is what the program gets from its surroundings, and from its flags.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	options        *options
}

// verb is what a command does.
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
		{name: "status", help: "the cluster's status, as JSON", run: status},
		{name: "monmap", help: "the monitors", run: monmap},
		{name: "osdmap", help: "the epoch of the osdmap and its size", run: osdmap},
		{name: "lspools", help: "the names of all pools", run: lspools},
		{name: "df", help: "how full the cluster and its pools are, as JSON", run: df},
		{name: "ls", args: "POOL", help: "the objects of a pool's namespace", run: list, long: true},
		{name: "put", args: "POOL OBJECT FILE", help: "write an object; - is standard input", run: onObject(put), long: true},
		{name: "get", args: "POOL OBJECT FILE", help: "read an object; - is standard output", run: onObject(get), long: true},
		{name: "append", args: "POOL OBJECT FILE", help: "write at the end of an object; - is standard input", run: onObject(appendTo), long: true},
		{name: "truncate", args: "POOL OBJECT SIZE", help: "set the size of an object", run: onObject(truncate)},
		{name: "stat", args: "POOL OBJECT", help: "size and time of an object", run: onObject(stat)},
		{name: "rm", args: "POOL OBJECT...", help: "remove objects", run: remove},
		{name: "xattr", args: "POOL OBJECT ACTION...", help: "list; get NAME; set NAME VALUE; rm NAME", run: onObject(xattr)},
		{name: "omap", args: "POOL OBJECT ACTION...", help: "list; get KEY; set KEY VALUE; rm KEY; clear", run: onObject(omap)},
		{name: "lock", args: "POOL OBJECT ACTION...", help: "list; info NAME; take or share NAME COOKIE; break NAME", run: onObject(lock)},
		{name: "snap", args: "POOL ACTION...", help: "list; create NAME; rm NAME; rollback NAME OBJECT", run: snap},
		{name: "bench", args: "POOL MODE", help: "measure: write, seq, rand; cleanup", run: bench, long: true},
	}
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	var o options
	p := cli.Program{Name: "cephclient", About: "a client of a Ceph cluster", Flags: cli.NewFlags("cephclient"), Values: map[string][]string{
		"ENGINE": flags.Backends, "LEVEL": flags.Levels, "LIST": {"crc", "secure", "secure,crc"},
		"METHOD": {"none", "snappy", "zlib", "zstd", "lz4"}, "REVISION": {"0", "1"},
	}}
	o.register(p.Flags)
	for _, c := range commands() {
		p.Commands = append(p.Commands, cli.Command{Name: c.name, Args: c.args, Help: c.help, Run: func(ctx context.Context, args []string) error {
			return e.dialled(ctx, &o, c, args)
		}})
	}
	return p.Run(ctx, e.stdout, e.stderr, args)
}

// dialled runs a command with a connection to the cluster.
func (e env) dialled(ctx context.Context, o *options, verb command, args []string) (err error) {
	of := control.Config{}
	if err := o.Session.Read(&of); err != nil {
		return err
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	cfg, err := o.config(ctx, &of, e.stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	c, err := rados.Dial(ctx, cfg)
	cfg.Key.Wipe()
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

func status(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	out, err := c.Mon().Command(ctx, map[string]string{"prefix": "status", "format": "json-pretty"})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s\n", out.Data)
	return err
}

func monmap(_ context.Context, e env, c *rados.Cluster, _ []string) error {
	return printJSON(e.stdout, c.Mon().MonMap())
}

func osdmap(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	m, err := c.Mon().OSDMap(ctx)
	if err != nil {
		return err
	}
	return printJSON(e.stdout, struct {
		Epoch uint32 `json:"epoch"`
		Bytes int    `json:"bytes"`
	}{m.Epoch(), len(m.Full[m.Epoch()])})
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
