package sessions

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Config of a Manager: the part of control.Config that sessions need, checked and with its
// defaults filled in. Fields of the same name mean the same. 0 stands for no bound.
type Config struct {
	Name   wire.EntityName
	Number int64 // below 0: a monitor gives it
	Nonce  *uint32

	Plane      loop.Config
	OwnNetwork bool // the cores have a network of their own, which nothing steers
	Steer      steering.Mode
	HintPorts  bpf.PortRange
	SteerTable int

	BindPorts      bpf.PortRange
	BindRetries    int
	BindRetryDelay time.Duration

	Policies map[wire.EntityType]Policy
	Default  Policy

	AuthClient  auth.Client
	AuthServer  auth.Server
	Modes       []auth.Mode
	Rev0        bool
	NoDataCRC   bool
	Compression Compression
	Limits      frame.Limits

	HandshakeTimeout time.Duration
	InitialBackoff   time.Duration
	MaxBackoff       time.Duration
	MaxStandby       int
	Door             door.Config // who may be half open

	Handler dataplane.HandlerConfig // of every connection, but for its Owner
	Open    dataplane.OpenOptions   // of every socket, but for what its session says
	// InFlight bounds received messages of all connections, Share the part of it that each
	// has for itself, ConnBytes those of each connection.
	InFlight         *loop.Throttle
	Share, ConnBytes int64

	Probe  probe.Probe
	Tracer probe.Tracer
	KeyLog io.Writer
	Clock  Clock
	Rand   io.Reader
	Logger *slog.Logger
}

// Clock is the time of the control plane: back-off, deadlines of handshakes.
// The machine's is the default; a simulation brings its own.
type Clock interface {
	Now() time.Time
	// AfterFunc runs f on a goroutine of its own after d. The returned stop
	// prevents that and says whether it came in time.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// followHints says whether we reconnect by the owner hints of peers.
func (c *Config) followHints() bool {
	rules, _ := c.Steer.Rules(false) // the user has checked it
	return rules.Has(bpf.RuleHint) && !c.OwnNetwork
}

// newSteerer makes what steers our listeners, with programs that load makes.
func (m *Manager) newSteerer(load func(bpf.Config) (*bpf.Steering, error)) *steering.Steerer {
	cfg := &m.cfg
	rules, _ := cfg.Steer.Rules(cfg.Plane.Pin) // the user has checked it
	c := steering.Config{
		Mode: cfg.Steer, Rules: rules, Auto: cfg.Steer == steering.Auto, HintPorts: cfg.HintPorts, TableSize: cfg.SteerTable,
		Load: load, Logger: cfg.Logger, Waits: m.mu.Check.Waits,
	}
	switch {
	case cfg.Steer == steering.None:
		c.Off = errors.New("switched off")
	case cfg.OwnNetwork:
		c.Off = errors.New("the cores have a network of their own")
	}
	return steering.New(c)
}
