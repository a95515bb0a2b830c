package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// options are the flags, and the settings that need no flags.
type options struct {
	known   settings
	mons    string
	keyring string
	conf    string
	keyFrom string         // where the key was found; empty: there is none
	sought  string         // where there is none
	cfg     control.Config // that the flags set
	engine  scope.Engine

	pool                     []string // of --pool
	namespace, locator, snap string
	reads                    string
	all, quiet               bool
	offset, size             int64
	threads                  int
	seconds, duration        time.Duration
	scope.Session
}

// letters are the flags that Ceph's own tools have by a letter.
var letters = map[string]string{"conf": "c", "keyring": "k", "mon": "m", "name": "n", "namespace": "N", "pool": "p"}

// register makes the flags. Their defaults come from the environment.
func (o *options) register(to *pflag.FlagSet, getenv func(string) string) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError) // a flag gets its letter before it is added
	args := readArgs(getenv("CEPH_ARGS"))
	args["keyring"] = cmp.Or(args["keyring"], getenv("CEPH_KEYRING"))
	o.known.args = args
	fs.StringVar(&o.conf, "conf", cmp.Or(args["conf"], getenv("CEPH_CONF")),
		"`FILE` that names the monitors and the place of the key, or a list of which the first is taken "+
			"(default ceph.conf in /etc/ceph, ~/.ceph or here)")
	fs.StringVar(&o.mons, "mon", "",
		"`ADDRS` of monitors, such as v2:10.0.0.1:3300 or mon-a.example.com, separated by commas (default "+
			"mon_host of --conf, without it those that the DNS has for _ceph-mon._tcp)")
	fs.StringVar(&o.keyring, "keyring", "",
		"`FILE` with its key (default keyring of --conf, or files in /etc/ceph; without a key there is no "+
			"authentication)")
	cli.Var(fs, &o.cfg.Protocol.Compression, "compress", "none",
		"`METHOD` of compression to offer OSDs; Ceph's OSDs accept none from a client", compression,
		"none", "snappy", "zlib", "zstd", "lz4")
	fs.Func("pool", "`POOL`, in place of the argument", func(name string) error { o.pool = []string{name}; return nil })
	fs.StringVar(&o.namespace, "namespace", "", "`NAME` of the namespace of objects")
	fs.BoolVar(&o.all, "all", false, "ls: the objects of all namespaces, each after its namespace")
	fs.StringVar(&o.locator, "locator", "", "`KEY` that places objects in place of their names")
	fs.StringVar(&o.snap, "snap", "", "`NAME` of the pool's snapshot to read")
	cli.ChoiceVar(fs, &o.reads, "reads", "",
		"`POLICY` of reads: of the primary (default), of any replica (balance), or of the nearest one by crush_location of --conf "+
			"(localize); without it rados_replica_read_policy of --conf", "default", "balance", "localize")
	cli.BytesVar(fs, &o.offset, "offset", 0, 0, math.MaxInt64,
		"put, get: `BYTES` from the start of the object; put then replaces nothing else")
	fs.BoolVar(&o.quiet, "quiet", false, "put, get, append: no progress on a terminal")
	cli.BytesVar(fs, &o.size, "size", 4<<20, 1, maxSize, "bench write: `BYTES` of each object")
	cli.IntVar(fs, &o.threads, "threads", 16, 1, maxThreads, "bench, rm: `NUMBER` of operations at a time")
	cli.DurationVar(fs, &o.seconds, "seconds", 10*time.Second, 1, "bench: `TIME` to measure")
	cli.DurationVar(fs, &o.duration, "duration", 0, 0, "lock: `TIME` after which it ends (default never)")
	o.Session.Register(fs, &o.cfg, cmp.Or(args["name"], "client."+cmp.Or(args["id"], "admin")), 30*time.Second,
		"bound of the whole command, or of each step of a command that moves data")
	o.engine.Register(fs)
	fs.VisitAll(func(f *pflag.Flag) { f.Shorthand = letters[f.Name] })
	to.AddFlagSet(fs)
}

// policies are the values of --reads, as Ceph has them.
var policies = map[string]rados.Flags{"default": 0, "balance": rados.BalanceReads, "localize": rados.LocalizeReads}

// Bounds of a bench.
const (
	maxThreads = 1 << 14
	maxSize    = 64 << 20
)

func compression(text string) (c control.Compression, err error) {
	method, err := wire.ParseCompression(text)
	if method != wire.CompressionNone {
		c.Methods = []wire.CompressionMethod{method}
	}
	return c, err
}

// config makes the configuration of the cluster. Its errors are usage errors, but for an unknown
// host, for files to write, and for the end of ctx.
func (o *options) config(ctx context.Context, e env) (cfg rados.Config, err error) {
	if cfg.Name, err = o.Entity(); err != nil {
		return cfg, err
	}
	o.known.name = cfg.Name
	if o.mons == "" || o.keyring == "" {
		if err := o.known.readConf(ctx, o.conf, e.getenv("HOME")); err != nil {
			return cfg, err
		}
	}
	o.reads = cmp.Or(o.reads, o.known.get("rados_replica_read_policy"), "default")
	if _, ok := policies[o.reads]; !ok {
		return cfg, cli.Usagef("--reads is %q, want default, balance or localize", o.reads)
	}
	cfg.Location = split(o.known.get("crush_location"))
	mons, what := split(o.mons), "--mon"
	if len(mons) == 0 {
		if mons, what, err = o.known.monitors(ctx, e.lookupSRV); len(mons) == 0 {
			const missing = "--mon is missing: the address of a monitor; there is no mon_host in %s either, and the DNS has no %s: %w"
			return cfg, cli.Usagef(missing, cmp.Or(o.known.file, "a ceph.conf"), what, err)
		}
	}
	for _, text := range mons {
		a, err := scope.AddressReader{Proto: o.Proto}.Parse(ctx, text)
		if err != nil {
			return cfg, fmt.Errorf("%s: %w", what, err)
		}
		cfg.Mons = append(cfg.Mons, a)
	}
	cfg.Rev0, cfg.Modes, cfg.Compression = o.cfg.Protocol.Rev0, o.cfg.Auth.Modes, o.cfg.Protocol.Compression
	cfg.Plane.Driver.Backend, cfg.Logger = o.engine.Backend, o.engine.Logger(e.stderr)
	if o.keyring != "" {
		cfg.Key, err = readKey(ctx, o.keyring, cfg.Name)
		o.keyFrom = o.keyring
	} else if cfg.Key, o.keyFrom, err = o.known.key(ctx); cfg.Key.IsZero() {
		o.keyFrom, o.sought = "", o.keyFrom
	}
	if err != nil {
		return cfg, err
	}
	if err := o.Apply(&o.cfg); err != nil {
		cfg.Key.Wipe()
		return cfg, err
	}
	cfg.Tracer, cfg.KeyLog = o.cfg.Diagnostics.Tracer, o.cfg.Diagnostics.KeyLog
	return cfg, nil
}
