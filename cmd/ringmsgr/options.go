package main

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// machineOptions are the flags of every command: how the I/O is done.
type machineOptions struct {
	json   bool
	cores  int
	pin    bool
	engine flags.Engine
}

func (o *machineOptions) register(fs *flag.FlagSet, cores int) {
	fs.BoolVar(&o.json, "json", false, "write JSON")
	usage := "`NUMBER` of cores: threads with a ring each"
	if cores == 0 {
		usage += " (default one per usable CPU)"
	}
	fs.IntVar(&o.cores, "cores", cores, usage)
	fs.BoolVar(&o.pin, "pin", false, "bind each core to a CPU; only with CPUs that nothing else uses")
	o.engine.Register(fs)
}

// plane is the configuration of the cores.
func (o *machineOptions) plane(e env) (loop.Config, error) {
	backend, log, err := o.engine.Read(e.stderr)
	if err != nil {
		return loop.Config{}, err
	}
	cfg := loop.Config{Cores: o.cores}
	if err := cfg.Validate(); err != nil {
		return cfg, cli.Usagef("--cores %d: %s", o.cores, wanted(err))
	}
	cfg.Pin, cfg.Logger, cfg.Driver = o.pin, log, uring.Config{Backend: backend}
	if err := cfg.Validate(); err != nil {
		return cfg, &cli.UsageError{Err: err}
	}
	if cfg.Cores == 0 {
		cfg.Cores = runtime.NumCPU()
	}
	return cfg, nil
}

// wanted is the part of a library's error about valid values.
func wanted(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "want "); i >= 0 {
		return text[i:]
	}
	return text
}

// sessionOptions are the flags of every command that talks to a peer.
type sessionOptions struct {
	machineOptions
	flags.Session
	listen listenFlag
	policy string
	steer  string
	packed string
	authOptions
	networkOptions
}

func (o *sessionOptions) register(fs *flag.FlagSet, name string, cores int, timeout time.Duration, bound string) {
	o.machineOptions.register(fs, cores)
	o.authOptions.register(fs)
	o.networkOptions.register(fs)
	o.Session.Register(fs, name, timeout, bound)
	fs.Func("listen", "`ADDR` to accept connections on, such as v2:127.0.0.1:6800; may be repeated", o.listen.add)
	fs.StringVar(&o.policy, "policy", "", "`POLICY` of connections: "+strings.Join(control.PolicyNames(), ", "))
	fs.StringVar(&o.steer, "steer", "auto",
		"`RULES` by which the kernel finds the core of a connection: auto, none, cpu, hint, table, or a "+
			"comma list")
	fs.StringVar(&o.packed, "compress", "",
		"compression `METHODS` to offer and accept, a comma list of snappy, zlib, zstd, lz4; most preferred "+
			"first")
}

// config is the configuration of a messenger. Its errors are usage errors, but for files to
// write. The caller closes the recording.
func (o *sessionOptions) config(e env) (cfg control.Config, err error) {
	if cfg.Plane, err = o.plane(e); err != nil {
		return cfg, err
	}
	cfg.Logger = cfg.Plane.Logger
	if err := o.Session.Read(&cfg); err != nil {
		return cfg, err
	}
	cfg.Timeouts.Handshake = o.Timeout
	if o.policy != "" {
		p, err := control.ParsePolicy(o.policy)
		if err != nil {
			return cfg, cli.Usagef("--policy %q: %s", o.policy, wanted(err))
		}
		cfg.Default = &p
	}
	if err := o.listen.read(o.Proto); err != nil {
		return cfg, cli.Usagef("--listen: %w", err)
	}
	if cfg.Steer, err = control.ParseSteer(o.steer); err != nil {
		return cfg, cli.Usagef("--steer %q: %s", o.steer, wanted(err))
	}
	if cfg.Protocol.Compression, err = o.compression(); err != nil {
		return cfg, err
	}
	if cfg.Nonce, err = o.pickNonce(cfg.Name); err != nil {
		return cfg, err
	}
	if err := o.authenticate(&cfg); err != nil {
		return cfg, err
	}
	if err := o.networkOptions.apply(&cfg); err != nil {
		return cfg, err
	}
	if err := cfg.Validate(); err != nil {
		return cfg, &cli.UsageError{Err: err}
	}
	return cfg, o.Recording.Apply(&cfg)
}

// compression parses --compress. A named method holds for every peer.
func (o *sessionOptions) compression() (c control.Compression, err error) {
	if o.packed == "" {
		return c, nil
	}
	for _, name := range strings.Split(o.packed, ",") {
		m, err := wire.ParseCompression(name)
		if err != nil {
			return c, cli.Usagef("--compress: %w", err)
		}
		c.Methods = append(c.Methods, m)
	}
	c.Peers = []wire.EntityType{wire.Mon, wire.OSD, wire.MDS, wire.Mgr, wire.Client}
	return c, nil
}

// dials checks that the policy is one of a side that dials.
func dials(cfg *control.Config) error {
	if cfg.Default != nil && cfg.Default.Server {
		return cli.Usagef("--policy %s never dials; want one of a client or peer", cfg.Default.Name)
	}
	return nil
}

// pickNonce is the nonce of all our addresses, 0 for a mon; nil lets the messenger choose.
func (o *sessionOptions) pickNonce(name wire.EntityName) (nonce *uint32, err error) {
	for _, a := range o.listen.addrs {
		if a.Nonce == 0 {
			continue
		}
		if nonce != nil && *nonce != a.Nonce {
			return nil, cli.Usagef("--listen %v: all addresses of a process have the same nonce", a)
		}
		nonce = &a.Nonce
	}
	if nonce == nil && name.Type == wire.Mon {
		nonce = new(uint32)
	}
	return nonce, nil
}

// target reads the address of the peer. It is a usage error that it is none; that
// its host is not known is a failure to connect.
func (o *sessionOptions) target(ctx context.Context, e env, args []string) (wire.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	r, err := address.Reader{Lookup: e.lookup}.For(o.Proto, args[0])
	if err != nil {
		return wire.Addr{}, cli.Usagef("--proto: %w", err)
	}
	a, err := r.Parse(ctx, args[0])
	switch {
	case errors.Is(err, address.ErrSyntax):
		err = &cli.UsageError{Err: err}
	case err != nil:
		err = &control.Error{Stage: control.StageConnect, Err: err}
	}
	return a, err
}

// setUp is the beginning of a command that talks to a peer: its configuration and the address
// of the peer. It reports a failure that is no usage error.
func (o *sessionOptions) setUp(ctx context.Context, e env, command string, args []string) (cfg control.Config, to wire.Addr, err error) {
	cfg, err = o.config(e)
	if err != nil {
		return cfg, wire.Addr{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Recording.Close())
		}
	}()
	to, err = o.target(ctx, e, args)
	if failed, ok := errors.AsType[*control.Error](err); ok {
		err = fail(e, command, o.json, failure{failed.Err.Error(), failed.Stage})
	}
	return cfg, to, err
}

// peerType parses --peer.
func peerType(s string) (wire.EntityType, error) {
	switch t, _ := wire.ParseEntityType(s); t { // 0 after an error
	case wire.Mon, wire.OSD, wire.Mgr, wire.MDS, wire.Client:
		return t, nil
	}
	return 0, cli.Usagef("--peer %q: want mon, osd, mgr, mds or client", s)
}
