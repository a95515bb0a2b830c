package main

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/compress"
	"github.com/ringmsgr/ringmsgr/control/handshake"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// options are the flags.
type options struct {
	mons     string
	name     string
	keyring  string
	mode     string
	rev      int
	compress string
	backend  string
	timeout  time.Duration
	verbose  bool
}

func (o *options) register(fs *flag.FlagSet) {
	fs.StringVar(&o.mons, "mon", "", "`ADDRS` of monitors, such as v2:10.0.0.1:3300, separated by commas")
	fs.StringVar(&o.name, "name", "client.admin", "`ENTITY` that we are")
	fs.StringVar(&o.keyring, "keyring", "", "`FILE` with its key; without it there is no authentication")
	fs.StringVar(&o.mode, "mode", "", "connection modes, preferred first: `LIST` of crc and secure (default the protocol's)")
	fs.IntVar(&o.rev, "rev", 1, "highest protocol `REVISION`: 0 for msgr2.0, 1 for msgr2.1")
	fs.StringVar(&o.compress, "compress", "none", "`METHOD` of compression towards OSDs that have it")
	fs.StringVar(&o.backend, "backend", "auto", "I/O `ENGINE`: auto, io_uring or epoll")
	fs.DurationVar(&o.timeout, "timeout", 30*time.Second, "`DURATION` of the whole command at most")
	fs.BoolVar(&o.verbose, "v", false, "log what happens to standard error")
}

// config is what the flags say. Its errors are usage errors.
func (o *options) config(log io.Writer) (cfg rados.Config, err error) {
	if o.mons == "" {
		return cfg, usagef("--mon is missing: the address of a monitor")
	}
	for text := range strings.SplitSeq(o.mons, ",") {
		a, err := wire.ParseAddr(text)
		if err != nil || a.Type != wire.AddrMsgr2 {
			return cfg, usagef("--mon %q: want v2:IP:PORT", text)
		}
		cfg.Mons = append(cfg.Mons, a)
	}
	if cfg.Name, err = wire.ParseEntityName(o.name); err != nil {
		return cfg, usagef("--name: %w", err)
	}
	if o.rev != 0 && o.rev != 1 {
		return cfg, usagef("--rev %d: want 0 or 1", o.rev)
	}
	cfg.Rev0 = o.rev == 0
	if o.mode != "" {
		if cfg.Modes, err = auth.ParseModes(o.mode); err != nil {
			return cfg, usagef("--mode: %w", err)
		}
	}
	method, err := compress.Parse(o.compress)
	if err != nil {
		return cfg, usagef("--compress: %w", err)
	}
	if method != handshake.CompressionNone {
		cfg.Compression = control.Compression{Methods: []handshake.CompressionMethod{method}}
	}
	switch b := uring.Backend(o.backend); b {
	case uring.Auto, uring.IOUring, uring.Epoll:
		cfg.Plane = dataplane.Config{Cores: 1, Driver: uring.Config{Backend: b}}
	default:
		return cfg, usagef("--backend %q: want auto, io_uring or epoll", o.backend)
	}
	if o.timeout <= 0 {
		return cfg, usagef("--timeout %v: want more than nothing", o.timeout)
	}
	if o.verbose {
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	if o.keyring != "" {
		cfg.Key, err = readKey(o.keyring, cfg.Name)
	}
	return cfg, err
}

// readKey finds the entity's key in a keyring file.
func readKey(file string, name wire.EntityName) (cephx.Key, error) {
	f, err := os.Open(file)
	if err != nil {
		return cephx.Key{}, usagef("--keyring: %w", err)
	}
	defer f.Close()
	ring, err := cephx.ReadKeyring(f)
	if err != nil {
		return cephx.Key{}, usagef("--keyring %s: %w", file, err)
	}
	defer ring.Wipe()
	e, ok := ring.Lookup(name)
	if !ok {
		return cephx.Key{}, usagef("--keyring %s has no key of %v", file, name)
	}
	return e.Key.Clone(), nil
}
