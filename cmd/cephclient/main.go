// Command cephclient is a small client of a Ceph cluster, as an example of what
// can be built on package control: it shows the cluster's status and monmap, and
// writes, reads, stats and removes objects.
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
		return run(ctx, env{os.Stdin, os.Stdout, os.Stderr}, args)
	})
}

// env is what the program gets from its surroundings.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// command is one of the program's verbs.
type command struct {
	name string
	args string // their names
	help string
	run  func(ctx context.Context, e env, c *rados.Cluster, args []string) error
}

func commands() []command {
	return []command{
		{"status", "", "the cluster's status, as JSON", status},
		{"monmap", "", "the monitors", monmap},
		{"osdmap", "", "the epoch of the osdmap and its size", osdmap},
		{"put", "POOL OBJECT FILE", "write an object; - is standard input", put},
		{"get", "POOL OBJECT FILE", "read an object; - is standard output", get},
		{"stat", "POOL OBJECT", "size and time of an object", stat},
		{"rm", "POOL OBJECT", "remove an object", remove},
	}
}

// run is the whole program. It ends early when ctx does.
func run(ctx context.Context, e env, args []string) int {
	var o options
	p := cli.Program{Name: "cephclient", About: "a small client of a Ceph cluster", Flags: cli.NewFlags("cephclient"), Values: map[string][]string{
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

func put(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	var data []byte
	var err error
	if args[2] == "-" {
		data, err = io.ReadAll(e.stdin)
	} else {
		data, err = os.ReadFile(args[2])
	}
	if err != nil {
		return err
	}
	return c.Write(ctx, args[0], args[1], data)
}

func get(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	data, err := c.Read(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	if args[2] != "-" {
		return os.WriteFile(args[2], data, 0o666)
	}
	_, err = e.stdout.Write(data)
	return err
}

func stat(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	i, err := c.Stat(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	return printJSON(e.stdout, i)
}

func remove(ctx context.Context, _ env, c *rados.Cluster, args []string) error {
	return c.Remove(ctx, args[0], args[1])
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
