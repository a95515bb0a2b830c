package main

import (
	"context"
	"errors"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

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
	p := cli.Program{Name: "cephclient", About: "a small client of a Ceph cluster", Flags: cli.NewFlags("cephclient")}
	p.Values = map[string][]string{
		"ENGINE": flags.Backends, "LEVEL": flags.Levels, "LIST": {"crc", "secure", "secure,crc"},
		"METHOD": {"none", "snappy", "zlib", "zstd", "lz4"}, "REVISION": {"0", "1"},
	}
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
	err = verb.run(ctx, e, c, args)
	return errors.Join(o.explain(err), c.Close())
}
