package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/compress"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// machineOptions are the flags of every command: how the I/O is done.
type machineOptions struct {
	json     bool
	cores    int
	pin      bool
	backend  string
	spin     time.Duration
	receive  string
	logLevel string
}

func (o *machineOptions) register(fs *flag.FlagSet, cores int) {
	fs.BoolVar(&o.json, "json", false, "write JSON")
	usage := "`NUMBER` of cores: threads with a ring each"
	if cores == 0 {
		usage += " (default one per usable CPU)"
	}
	fs.IntVar(&o.cores, "cores", cores, usage)
	fs.BoolVar(&o.pin, "pin", false, "bind each core to a CPU; only with CPUs that nothing else uses")
	fs.StringVar(&o.backend, "backend", "auto", "I/O `ENGINE`: auto, io_uring or epoll")
	fs.DurationVar(&o.spin, "spin", 0, "`DURATION` that a core polls at most before it sleeps, such as 20us")
	fs.StringVar(&o.receive, "receive", "auto", "`MODE` of receiving: auto, buffers or ready")
	fs.StringVar(&o.logLevel, "log-level", "warn", "`LEVEL` from which to log to standard error: debug, info, warn, error, or off")
}

// logger writes text to standard error.
func (o *machineOptions) logger(w io.Writer) (*slog.Logger, error) {
	if o.logLevel == "off" {
		return slog.New(slog.DiscardHandler), nil
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, usagef("--log-level %q: want off, debug, info, warn or error", o.logLevel)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), nil
}

// plane is the configuration of the cores.
func (o *machineOptions) plane(e env) (dataplane.Config, error) {
	log, err := o.logger(e.stderr)
	if err != nil {
		return dataplane.Config{}, err
	}
	switch b := uring.Backend(o.backend); b {
	case uring.Auto, uring.IOUring, uring.Epoll:
	default:
		return dataplane.Config{}, usagef("--backend %q: want auto, io_uring or epoll", o.backend)
	}
	cfg := dataplane.Config{
		Cores: o.cores, Pin: o.pin, Spin: o.spin, Logger: log,
		Driver:  uring.Config{Backend: uring.Backend(o.backend)},
		Receive: dataplane.ReceiveMode(o.receive),
	}
	if err := cfg.Validate(); err != nil {
		return cfg, &usageError{err}
	}
	if cfg.Cores == 0 {
		cfg.Cores = runtime.NumCPU()
	}
	return cfg, nil
}

// sessionOptions are the flags of every command that talks to a peer.
type sessionOptions struct {
	machineOptions
	name    string
	nonce   uint32Flag
	listen  listenFlag
	rev     int
	policy  string
	steer   string
	packed  string
	timeout time.Duration
	authOptions
	networkOptions
}

func (o *sessionOptions) register(fs *flag.FlagSet, name string, cores int, timeout time.Duration, bound string) {
	o.machineOptions.register(fs, cores)
	o.authOptions.register(fs)
	o.networkOptions.register(fs)
	fs.StringVar(&o.name, "name", name, "`ENTITY` that we are, such as client.admin or mon.a")
	fs.Var(&o.nonce, "nonce", "`NUMBER` of this process in its address (default 0 for a mon, else random)")
	fs.Var(&o.listen, "listen", "`ADDR` to accept connections on, such as v2:127.0.0.1:6800, or the first free port of a range, as v2:127.0.0.1:6800-7568; may be repeated")
	fs.IntVar(&o.rev, "rev", 1, "highest protocol `REVISION`: 0 for msgr2.0, 1 for msgr2.1")
	fs.StringVar(&o.policy, "policy", "", "`POLICY` of connections: "+strings.Join(control.PolicyNames(), ", "))
	fs.StringVar(&o.steer, "steer", "auto", "`RULES` by which the kernel finds the core of a connection: auto, none, cpu, hint, table, or a comma list")
	fs.StringVar(&o.packed, "compress", "", "compression `METHODS` to offer and accept, a comma list of snappy, zlib, zstd, lz4; most preferred first")
	fs.DurationVar(&o.timeout, "timeout", timeout, "`DURATION`: "+bound)
}

// config is the configuration of a messenger. Its errors are usage errors.
func (o *sessionOptions) config(e env) (cfg control.Config, err error) {
	if cfg.Plane, err = o.plane(e); err != nil {
		return cfg, err
	}
	cfg.Logger = cfg.Plane.Logger
	if cfg.Name, err = wire.ParseEntityName(o.name); err != nil {
		return cfg, usagef("--name: %w", err)
	}
	switch cfg.Name.Type {
	case wire.OSD, wire.Mon:
		// An osd's number is its id. That of a mon is its rank, which only a
		// map of the cluster tells; there is one of us, the first.
		if n, err := strconv.ParseUint(cfg.Name.ID, 10, 31); err == nil {
			cfg.Number = int64(n)
		}
	}
	if o.rev != 0 && o.rev != 1 {
		return cfg, usagef("--rev %d: want 0 or 1", o.rev)
	}
	cfg.Rev0 = o.rev == 0
	if o.timeout <= 0 {
		return cfg, usagef("--timeout %v: want more than nothing", o.timeout)
	}
	cfg.HandshakeTimeout = o.timeout
	if o.policy != "" {
		p, err := control.ParsePolicy(o.policy)
		if err != nil {
			return cfg, usagef("--policy: %w", err)
		}
		cfg.Default = &p
	}
	o.listen.apply(&cfg)
	if cfg.Steer, err = control.ParseSteer(o.steer); err != nil {
		return cfg, usagef("--steer: %w", err)
	}
	if cfg.Compression, err = o.compression(); err != nil {
		return cfg, err
	}
	if cfg.Nonce, err = o.pickNonce(cfg.Name); err != nil {
		return cfg, err
	}
	if err := o.authenticate(e, &cfg); err != nil {
		return cfg, err
	}
	if err := o.networkOptions.apply(&cfg); err != nil {
		return cfg, err
	}
	if err := cfg.Validate(); err != nil {
		return cfg, &usageError{err}
	}
	return cfg, nil
}

// compression parses --compress. Who names a method wants it with every peer.
func (o *sessionOptions) compression() (c control.Compression, err error) {
	if o.packed == "" {
		return c, nil
	}
	for _, name := range strings.Split(o.packed, ",") {
		m, err := compress.Parse(name)
		if err != nil {
			return c, usagef("--compress: %w", err)
		}
		c.Methods = append(c.Methods, m)
	}
	c.Peers = []wire.EntityType{wire.Mon, wire.OSD, wire.MDS, wire.Mgr, wire.Client}
	return c, nil
}

// dials checks that the policy is one of a side that dials.
func dials(cfg *control.Config) error {
	if cfg.Default != nil && cfg.Default.Server {
		return usagef("--policy %s never dials; want one of a client or peer", cfg.Default.Name)
	}
	return nil
}

// pickNonce is the nonce of all our addresses; nil lets the messenger choose.
func (o *sessionOptions) pickNonce(name wire.EntityName) (*uint32, error) {
	nonce := o.nonce.value
	for _, a := range o.listen.addrs {
		if a.Nonce == 0 {
			continue
		}
		if nonce != nil && *nonce != a.Nonce {
			return nil, usagef("--listen %v: all addresses of a process have the same nonce, that of --nonce", a)
		}
		nonce = &a.Nonce
	}
	if nonce == nil && name.Type == wire.Mon {
		nonce = new(uint32)
	}
	return nonce, nil
}

// target parses the address of the peer.
func target(args []string) (wire.Addr, error) {
	if len(args) != 1 {
		return wire.Addr{}, usagef("want one address, got %d arguments", len(args))
	}
	a, err := wire.ParseAddr(args[0])
	if err != nil {
		return a, &usageError{err}
	}
	switch {
	case a.Type != wire.AddrMsgr2:
		return a, usagef("address %v: only v2 addresses can be dialled", a)
	case a.IsBlank() || a.AddrPort.Port() == 0 || a.AddrPort.Addr().IsUnspecified():
		return a, usagef("address %v: want v2:IP:PORT/NONCE", a)
	}
	return a, nil
}

// peerType parses --peer.
func peerType(s string) (wire.EntityType, error) {
	t, err := wire.ParseEntityType(s)
	switch t {
	case wire.Mon, wire.OSD, wire.Mgr, wire.MDS, wire.Client:
	default:
		return 0, usagef("--peer %q: want mon, osd, mgr, mds or client", s)
	}
	if err != nil {
		return 0, usagef("--peer: %w", err)
	}
	return t, nil
}

// uint32Flag is a number that may be left out.
type uint32Flag struct{ value *uint32 }

func (f *uint32Flag) String() string {
	if f == nil || f.value == nil {
		return ""
	}
	return strconv.FormatUint(uint64(*f.value), 10)
}

func (f *uint32Flag) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return fmt.Errorf("want a number of 32 bits")
	}
	v := uint32(n)
	f.value = &v
	return nil
}

// size is a number of bytes, such as 64 or 4MiB.
type size int

var sizeUnits = []struct {
	suffix string
	bytes  uint64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

func (s *size) String() string {
	if s == nil {
		return ""
	}
	for _, u := range sizeUnits[:3] {
		if n := uint64(*s); n >= u.bytes && n%u.bytes == 0 {
			return fmt.Sprint(n/u.bytes, u.suffix)
		}
	}
	return fmt.Sprint(int(*s), "B")
}

func (s *size) Set(text string) error {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 40)
		if err != nil || n > (1<<40)/u.bytes {
			break
		}
		*s = size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("want a number of bytes such as 64, 16KiB or 4MiB")
}

// modes parses a comma list of connection modes.
func modes(s string) ([]auth.Mode, error) {
	if s == "" {
		return nil, nil
	}
	list, err := auth.ParseModes(s)
	if err != nil {
		return nil, usagef("--mode: %w", err)
	}
	return list, nil
}
