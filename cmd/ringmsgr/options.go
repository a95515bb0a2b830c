package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring"
)

// maxCores is the bound of the library.
const maxCores = 1024

// machineOptions are the flags of every command: how the I/O is done.
type machineOptions struct {
	json   bool
	cfg    control.Config // that the flags set
	engine scope.Engine
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
	scope.Session
	listen listenFlag
	authOptions
	via netip.AddrPort
}

func (o *sessionOptions) register(fs *pflag.FlagSet, name string, cores int, timeout time.Duration, bound string) {
	o.machineOptions.register(fs, cores)
	o.authOptions.register(fs)
	o.Session.Register(fs, &o.cfg, name, timeout, bound)
	fs.StringArrayVar(&o.listen.texts, "listen", nil,
		"`ADDR` to accept connections on, such as v2:127.0.0.1:6800; may be repeated")
	policy := func(text string) (*control.Policy, error) {
		p, err := control.ParsePolicy(text)
		return &p, err
	}
	cli.Var(fs, &o.cfg.Default, "policy", "",
		"`POLICY` of connections: "+strings.Join(control.PolicyNames(), ", "), cli.Wanted(policy),
		control.PolicyNames()...)
	cli.Var(fs, &o.cfg.Steer, "steer", "auto",
		"`RULES` by which the kernel finds the core of a connection: auto, none, cpu, hint, table, or a "+
			"comma list", cli.Wanted(control.ParseSteer), "auto", "none", "cpu", "hint", "table")
	cli.Var(fs, &o.cfg.Protocol.Compression, "compress", "",
		"compression `METHODS` to offer and accept, a comma list of snappy, zlib, zstd, lz4; most preferred "+
			"first", compression, "snappy", "zlib", "zstd", "lz4")
	cli.Var(fs, &o.via, "via", "", "`IP:PORT` of a tunnel or a proxy to the peer", readVia)
	cli.DurationVar(fs, &o.cfg.Timeouts.KeepaliveEvery, "keepalive", 0, 0,
		"`DURATION` between keepalives; five without an answer end the connection (default none)")
}

// silentKeepalives is the number of keepalives without an answer that end a connection.
const silentKeepalives = 5

// config is the configuration of a messenger. Its errors are usage errors, but for files to
// write, an unknown host, and the end of ctx. The caller closes the recording.
func (o *sessionOptions) config(ctx context.Context, e env) (cfg control.Config, err error) {
	if err := o.plane(e); err != nil {
		return cfg, err
	}
	cfg = o.cfg
	cfg.Logger, cfg.Timeouts.Handshake = cfg.Plane.Logger, o.Timeout
	if cfg.Name, err = o.Entity(); err != nil {
		return cfg, err
	}
	if err := o.listen.read(ctx, e.lookup, o.Proto); err != nil {
		return cfg, fmt.Errorf("--listen: %w", err) // a usage error, unless a host is not known
	}
	if cfg.Nonce, err = o.pickNonce(cfg.Name); err != nil {
		return cfg, err
	}
	if err := o.authenticate(ctx, &cfg); err != nil {
		return cfg, err
	}
	cfg.Timeouts.Keepalive = silentKeepalives * cfg.Timeouts.KeepaliveEvery
	// For a moment the kernel keeps the listeners of a process with a ring that was killed.
	cfg.Binding.Retries, cfg.Binding.RetryDelay = 20, 100*time.Millisecond
	if o.via.IsValid() {
		cfg.Plane.Open = func(int) (uring.Driver, error) {
			d, err := uring.Open(cfg.Plane.Driver)
			return detour{d, o.via}, err
		}
	}
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

// client calls run, of a command that dials, with its configuration and the address of the peer. It
// reports a failure that is no usage error.
func (o *sessionOptions) client(
	ctx context.Context, e env, command string, args []string,
	run func(ctx context.Context, e env, cfg control.Config, to wire.Addr) error,
) error {
	within, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	cfg, err := o.config(within, e)
	if err != nil {
		return err
	}
	cfg.Timeouts.Handshake = o.Timeout - o.Timeout/20 // its error names the stage that an attempt reached
	if cfg.Default == nil {                           // whatever we call ourselves: a mon would not dial a mon
		p := control.LossyClient()
		cfg.Default = &p
	}
	to, err := scope.AddressReader{Proto: o.Proto, Lookup: e.lookup}.Parse(within, args[0])
	switch {
	case cli.IsUsage(err): // it is no address
	case err != nil: // its host is not known
		err = fail(e, command, o.json, failure{err.Error(), control.StageConnect})
	case cfg.Default.Server:
		err = cli.Usagef("--policy %s never dials; want one of a client or peer", cfg.Default.Name)
	default:
		err = run(ctx, e, cfg, to)
	}
	return errors.Join(err, o.Recording.Close())
}

// peerTypes are the types of all peers.
var peerTypes = []wire.EntityType{wire.Mon, wire.OSD, wire.MDS, wire.Mgr, wire.Client}

func peerVar(fs *pflag.FlagSet, to *wire.EntityType) {
	read := func(text string) (t wire.EntityType, err error) {
		if t, _ = wire.ParseEntityType(text); !slices.Contains(peerTypes, t) { // 0 after an error
			err = errors.New("want mon, osd, mgr, mds or client")
		}
		return t, err
	}
	cli.Var(fs, to, "peer", "mon", "`TYPE` of the peer: mon, osd, mgr, mds or client", read,
		"mon", "osd", "mgr", "mds", "client")
}

// authOptions are the flags of the authentication.
type authOptions struct {
	auth    string
	keyring string
	// ticketLife is of tickets that we give out; 0: as real mons have it.
	ticketLife time.Duration
	// kinds are the kinds of keys that may log in; the secrets that we make are of the first
	// kind.
	kinds cephx.Ciphers
}

func (o *authOptions) register(fs *pflag.FlagSet) {
	cli.ChoiceVar(fs, &o.auth, "auth", "none", "`METHOD` of authentication: none or cephx", "none", "cephx")
	fs.StringVar(&o.keyring, "keyring", "", "cephx: `FILE` with our key; for serve, with those of all entities and of mon.")
}

// authenticate sets cfg.Auth. Its name and modes are set. Only a mon can accept with cephx on its
// own: other daemons get the secrets for that from a cluster.
func (o *authOptions) authenticate(ctx context.Context, cfg *control.Config) error {
	list := cfg.Auth.Modes
	switch {
	case o.auth == "none" && o.keyring != "":
		return cli.Usagef("--keyring needs --auth cephx")
	case o.auth == "none" && len(list) > 0 && !slices.Contains(list, auth.CRC):
		return cli.Usagef("--mode secure needs --auth cephx: without a key there is nothing to encrypt with")
	case o.auth == "none":
		return nil
	case o.keyring == "":
		return cli.Usagef("--auth cephx needs --keyring")
	}
	owner := cfg.Name
	if owner.Type == wire.Mon {
		owner.ID = "" // monitors share the key of "mon."
	}
	ring, own, err := scope.Keyring(ctx, o.keyring, owner)
	if err != nil {
		return err
	}
	client := cephx.ClientConfig{Name: cfg.Name, Key: own}
	if len(list) > 0 { // else the defaults
		client.Modes = func(wire.EntityType) []auth.Mode { return list }
	}
	if cfg.Name.Type == wire.Mon {
		client.Authority, err = cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring, Ciphers: o.kinds, ServiceTTL: o.ticketLife})
		if err == nil {
			server := cephx.ServerConfig{Own: wire.Mon, Authority: client.Authority, Modes: client.Modes}
			cfg.Auth.Server, err = cephx.NewServer(server)
		}
	}
	if err == nil {
		cfg.Auth.Client, err = cephx.NewClient(client)
	}
	if err != nil {
		return cli.Usagef("--auth cephx: %w", err)
	}
	return nil
}

func ciphers(text string) (c cephx.Ciphers, err error) {
	if c.Allowed, err = cli.List(cephx.ParseKind)(text); err != nil {
		return c, errors.New("want a list of aes256k and aes")
	}
	c.Service, c.Preferred = c.Allowed[0], c.Allowed[0]
	slices.Sort(c.Allowed)
	return c, nil
}

// accepts checks that we can authenticate accepted peers.
func (o *authOptions) accepts(cfg *control.Config) error {
	if o.auth == "cephx" && cfg.Auth.Server == nil {
		return cli.Usagef("--name %v: it cannot accept with cephx on its own: a daemon gets the secrets for that from the monitors; "+
			"use --name mon.NAME with a keyring", cfg.Name)
	}
	return nil
}
