package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// options are the flags.
type options struct {
	mons     string
	keyring  string
	compress string
	engine   flags.Engine

	namespace, locator, snap string
	all                      bool
	offset, size             int64
	threads                  int
	seconds                  time.Duration
	flags.Session
}

func (o *options) register(fs *flag.FlagSet) {
	fs.StringVar(&o.mons, "mon", "", "`ADDRS` of monitors, such as v2:10.0.0.1:3300 or mon-a.example.com, separated by commas")
	fs.StringVar(&o.keyring, "keyring", "", "`FILE` with its key; without it there is no authentication")
	fs.StringVar(&o.compress, "compress", "none", "`METHOD` of compression to offer OSDs; Ceph's own take none from a client, they compress towards OSDs only")
	fs.StringVar(&o.namespace, "namespace", "", "`NAME` of the namespace of objects")
	fs.BoolVar(&o.all, "all", false, "ls: the objects of all namespaces, each behind its own")
	fs.StringVar(&o.locator, "locator", "", "`KEY` that places objects in place of their names")
	fs.StringVar(&o.snap, "snap", "", "`NAME` of the pool's snapshot to read")
	quantity(fs, &o.offset, "offset", 0, "put, get: `BYTES` from the start of the object; put then replaces nothing else")
	quantity(fs, &o.size, "size", 4<<20, "bench write: `BYTES` of each object")
	fs.IntVar(&o.threads, "threads", 16, "bench: `NUMBER` of operations at a time")
	fs.DurationVar(&o.seconds, "seconds", 10*time.Second, "bench: `TIME` to measure")
	o.Session.Register(fs, "client.admin", 30*time.Second, "bound of the whole command; of those that move much data, of each 4 MiB of it; of a measurement, of the time beside its own")
	o.engine.Register(fs)
}

// Bounds of a bench.
const (
	maxThreads = 1 << 14
	maxSize    = 64 << 20
)

// quantity defines a flag that is a number of bytes, such as 4M.
func quantity(fs *flag.FlagSet, v *int64, name string, preset int64, usage string) {
	*v = preset
	fs.Func(name, fmt.Sprintf("%s (default %s)", usage, cli.Bytes(preset)), func(text string) (err error) {
		*v, err = cli.ParseBytes(text, math.MaxInt64)
		return err
	})
}

// splitAddrs cuts a comma list of addresses, some of which may be lists in
// brackets themselves.
func splitAddrs(list string) (all []string) {
	begin, inside := 0, false
	for i, c := range list {
		switch {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ',' && !inside:
			all, begin = append(all, list[begin:i]), i+1
		}
	}
	return append(all, list[begin:])
}

// config is what the flags say, of which of has those that every session has. Its errors are
// usage errors, but for a host that is not known, and for files to write.
func (o *options) config(ctx context.Context, of *control.Config, log io.Writer) (cfg rados.Config, err error) {
	if o.mons == "" {
		return cfg, cli.Usagef("--mon is missing: the address of a monitor")
	}
	switch {
	case o.threads < 1 || o.threads > maxThreads:
		return cfg, cli.Usagef("--threads is %d, want 1 to %d", o.threads, maxThreads)
	case o.seconds <= 0:
		return cfg, cli.Usagef("--seconds is %v, want more than nothing", o.seconds)
	case o.size < 1 || o.size > maxSize:
		return cfg, cli.Usagef("--size is %s, want 1 B to %s", cli.Bytes(o.size), cli.Bytes(maxSize))
	}
	for _, text := range splitAddrs(o.mons) {
		r, err := address.Reader{}.For(o.Proto, text)
		if err != nil {
			return cfg, cli.Usagef("--proto: %w", err)
		}
		a, err := r.Parse(ctx, text)
		switch {
		case errors.Is(err, address.ErrSyntax):
			return cfg, cli.Usagef("--mon: %w", err)
		case err != nil:
			return cfg, fmt.Errorf("--mon: %w", err)
		}
		cfg.Mons = append(cfg.Mons, a)
	}
	cfg.Name, cfg.Rev0, cfg.Modes = of.Name, of.Protocol.Rev0, of.Auth.Modes
	method, err := wire.ParseCompression(o.compress)
	if err != nil {
		return cfg, cli.Usagef("--compress: %w", err)
	}
	if method != wire.CompressionNone {
		cfg.Compression = control.Compression{Methods: []wire.CompressionMethod{method}}
	}
	cfg.Plane.Cores = 1
	if cfg.Plane.Driver.Backend, cfg.Logger, err = o.engine.Read(log); err != nil {
		return cfg, err
	}
	if o.keyring != "" {
		if cfg.Key, err = readKey(o.keyring, cfg.Name); err != nil {
			return cfg, err
		}
	}
	if err := o.Apply(of); err != nil {
		cfg.Key.Wipe()
		return cfg, err
	}
	cfg.Tracer, cfg.KeyLog = of.Diagnostics.Tracer, of.Diagnostics.KeyLog
	return cfg, nil
}

// readKey finds the entity's key in a keyring file.
func readKey(file string, name wire.EntityName) (cephx.Key, error) {
	ring, err := flags.Keyring(file)
	if err != nil {
		return cephx.Key{}, err
	}
	defer ring.Wipe()
	e, ok := ring.Lookup(name)
	if !ok {
		return cephx.Key{}, cli.Usagef("--keyring %s has no key of %v", file, name)
	}
	return e.Key.Clone(), nil
}
