package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/compress"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// options are the flags.
type options struct {
	mons     string
	name     string
	keyring  string
	mode     string
	proto    string
	rev      int
	compress string
	timeout  time.Duration
	engine   flags.Engine
	flags.Recording
}

func (o *options) register(fs *flag.FlagSet) {
	fs.StringVar(&o.mons, "mon", "", "`ADDRS` of monitors, such as v2:10.0.0.1:3300 or mon-a.example.com, separated by commas")
	fs.StringVar(&o.name, "name", "client.admin", "`ENTITY` that we are")
	fs.StringVar(&o.keyring, "keyring", "", "`FILE` with its key; without it there is no authentication")
	fs.StringVar(&o.mode, "mode", "", "connection modes, preferred first: `LIST` of crc and secure (default the protocol's)")
	fs.StringVar(&o.proto, "proto", "", "`PROTOCOL`: v2, or v1 for msgr1 with everybody who speaks it (default as the addresses of monitors say, else v2)")
	fs.IntVar(&o.rev, "rev", 1, "highest protocol `REVISION`: 0 for msgr2.0, 1 for msgr2.1")
	fs.StringVar(&o.compress, "compress", "none", "`METHOD` of compression towards OSDs that have it")
	fs.DurationVar(&o.timeout, "timeout", 30*time.Second, "`DURATION` of the whole command at most")
	o.Recording.Register(fs)
	o.engine.Register(fs)
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

// config is what the flags say. Its errors are usage errors, but for a host that
// is not known.
func (o *options) config(ctx context.Context, log io.Writer) (cfg rados.Config, err error) {
	if o.mons == "" {
		return cfg, cli.Usagef("--mon is missing: the address of a monitor")
	}
	for _, text := range splitAddrs(o.mons) {
		r, err := address.Reader{}.For(o.proto, text)
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
	if cfg.Name, err = flags.Name(o.name); err != nil {
		return cfg, err
	}
	if cfg.Rev0, err = flags.Revision(o.rev); err != nil {
		return cfg, err
	}
	if cfg.Modes, err = flags.Modes(o.mode); err != nil {
		return cfg, err
	}
	method, err := compress.Parse(o.compress)
	if err != nil {
		return cfg, cli.Usagef("--compress: %w", err)
	}
	if method != handshake.CompressionNone {
		cfg.Compression = control.Compression{Methods: []handshake.CompressionMethod{method}}
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
	return cfg, o.record(&cfg)
}

// record opens the files of --trace and --keylog.
func (o *options) record(cfg *rados.Config) error {
	var of control.Config
	if err := o.Apply(&of); err != nil {
		cfg.Key.Wipe()
		return err
	}
	cfg.Tracer, cfg.KeyLog = of.Tracer, of.KeyLog
	return nil
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
