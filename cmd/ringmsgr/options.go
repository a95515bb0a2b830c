package main

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/internal/address"
	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// maxCores is the bound of the library.
const maxCores = 1024

// machineOptions are the flags of every command: how the I/O is done.
type machineOptions struct {
	json   bool
	cfg    control.Config // that the flags set
	engine flags.Engine
}

func (o *machineOptions) register(fs *pflag.FlagSet, cores int) {
	fs.BoolVar(&o.json, "json", false, "write JSON")
	usage := "`NUMBER` of cores: threads with a ring each"
	if cores == 0 {
		usage += " (default one per usable CPU)"
	}
	cli.IntVar(fs, &o.cfg.Plane.Cores, "cores", cores, 0, maxCores, usage)
	fs.BoolVar(&o.cfg.Plane.Pin, "pin", false, "bind each core to a CPU; only with CPUs that nothing else uses")
	o.engine.Register(fs)
}

// plane completes the configuration of the cores.
func (o *machineOptions) plane(e env) error {
	p := &o.cfg.Plane
	p.Logger, p.Driver.Backend = o.engine.Logger(e.stderr), o.engine.Backend
	if err := p.Validate(); err != nil {
		return &cli.UsageError{Err: err}
	}
	p.Cores = cmp.Or(p.Cores, runtime.NumCPU())
	return nil
}

// sessionOptions are the flags of every command that talks to a peer.
type sessionOptions struct {
	machineOptions
	flags.Session
	listen listenFlag
	authOptions
	networkOptions
}

func (o *sessionOptions) register(fs *pflag.FlagSet, name string, cores int, timeout time.Duration, bound string) {
	o.machineOptions.register(fs, cores)
	o.authOptions.register(fs)
	o.networkOptions.register(fs, &o.cfg)
	o.Session.Register(fs, &o.cfg, name, timeout, bound)
	fs.Func("listen", "`ADDR` to accept connections on, such as v2:127.0.0.1:6800; may be repeated", o.listen.add)
	policy := func(text string) (*control.Policy, error) {
		p, err := control.ParsePolicy(text)
		return &p, err
	}
	cli.Var(fs, &o.cfg.Default, "policy", "", "`POLICY` of connections: "+strings.Join(control.PolicyNames(), ", "), cli.Wanted(policy),
		control.PolicyNames()...)
	cli.Var(fs, &o.cfg.Steer, "steer", "auto",
		"`RULES` by which the kernel finds the core of a connection: auto, none, cpu, hint, table, or a "+
			"comma list", cli.Wanted(control.ParseSteer), "auto", "none", "cpu", "hint", "table")
	cli.Var(fs, &o.cfg.Protocol.Compression, "compress", "",
		"compression `METHODS` to offer and accept, a comma list of snappy, zlib, zstd, lz4; most preferred "+
			"first", compression, "snappy", "zlib", "zstd", "lz4")
}

// config is the configuration of a messenger. Its errors are usage errors, but for files to
// write. The caller closes the recording.
func (o *sessionOptions) config(e env) (cfg control.Config, err error) {
	if err := o.plane(e); err != nil {
		return cfg, err
	}
	cfg = o.cfg
	cfg.Logger, cfg.Timeouts.Handshake = cfg.Plane.Logger, o.Timeout
	if cfg.Name, err = o.Entity(); err != nil {
		return cfg, err
	}
	if err := o.listen.read(o.Proto); err != nil {
		return cfg, cli.Usagef("--listen: %w", err)
	}
	if cfg.Nonce, err = o.pickNonce(cfg.Name); err != nil {
		return cfg, err
	}
	if err := o.authenticate(&cfg); err != nil {
		return cfg, err
	}
	o.networkOptions.apply(&cfg)
	if err := cfg.Validate(); err != nil {
		return cfg, &cli.UsageError{Err: err}
	}
	return cfg, o.Recording.Apply(&cfg)
}

// compression reads --compress. A named method holds for every peer.
func compression(text string) (c control.Compression, err error) {
	c.Peers = peerTypes
	c.Methods, err = cli.List(wire.ParseCompression)(text)
	return c, err
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

// peerTypes are the types of all peers.
var peerTypes = []wire.EntityType{wire.Mon, wire.OSD, wire.MDS, wire.Mgr, wire.Client}

// peerVar makes --peer.
func peerVar(fs *pflag.FlagSet, to *wire.EntityType) {
	read := func(text string) (t wire.EntityType, err error) {
		if t, _ = wire.ParseEntityType(text); !slices.Contains(peerTypes, t) { // 0 after an error
			err = errors.New("want mon, osd, mgr, mds or client")
		}
		return t, err
	}
	cli.Var(fs, to, "peer", "mon", "`TYPE` of the peer: mon, osd, mgr, mds or client", read, "mon", "osd", "mgr", "mds", "client")
}
