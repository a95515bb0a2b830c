package control

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Defaults, those of the real daemons where they have one (msgr2.md 11).
const (
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultIdleTimeout      = 900 * time.Second
	DefaultInitialBackoff   = 200 * time.Millisecond
	DefaultMaxBackoff       = 15 * time.Second
	DefaultQueueBytes       = 256 << 20
	DefaultQueueMessages    = 256 << 10
	DefaultDispatchBytes    = 100 << 20
	DefaultHalfOpen         = 4096
	DefaultSteerTable       = 4096
	DefaultBindRetryDelay   = 5 * time.Second
)

// Config of a messenger. Only Name is required.
type Config struct {
	// Name is who we are, such as client.admin or mon.a.
	Name wire.EntityName
	// Number is the number of the entity on the wire (gid): rank of a mon, id
	// of an osd. 0 for a client means that it takes the one that a monitor
	// gives it.
	Number int64
	// Nonce makes the address of this process instance unique. Monitors use 0;
	// nil means random.
	Nonce *uint32

	// Plane configures the cores. A messenger owns its plane.
	Plane dataplane.Config

	// Steer says how the kernel finds the core of a new connection once we are
	// bound, with several cores; empty: SteerAuto. Where the kernel or the
	// privilege is lacking the listeners work unsteered, and Stats says why.
	Steer Steer
	// HintPorts is the range of source ports that are owner hints. All peers
	// must have the same, outside of their ephemeral range. The zero value takes
	// the one that bpf.LocalHintRange finds, which is the same on machines with
	// the same port settings.
	HintPorts bpf.PortRange
	// SteerTable is the number of peers that each listening address can have
	// pinned (PinPeer); 0: 4096.
	SteerTable int

	// BindPorts is the range from which Bind takes the next free port for an
	// address whose port is 0, and Rebind always; the zero value leaves it to
	// the kernel. That of the real daemons is 6800-7568.
	BindPorts bpf.PortRange
	// BindRetries is how often Bind and Rebind try again, all ports each time,
	// when none was free, BindRetryDelay apart; 0: never, and 5 s.
	BindRetries    int
	BindRetryDelay time.Duration

	// Policy for peers of each type, and Default for the others. A nil
	// Default is LossyClient for a client and StatelessServer for the rest.
	Policies map[wire.EntityType]Policy
	Default  *Policy

	// AuthClient and AuthServer authenticate connections that we make and
	// accept; nil: method none. Messenger.SetAuth replaces them.
	AuthClient auth.Client
	AuthServer auth.Server
	// Modes that are accepted on our own connections, whatever AuthClient
	// offers; nil: all. With only auth.Secure nothing weaker is ever used.
	Modes []auth.Mode

	// Rev0 offers msgr2.0 only.
	Rev0 bool
	// NoDataCRC sends zeros in place of the crcs of segments in mode crc, and does
	// not check those of peers: damage on the way goes unnoticed. All peers must
	// be set alike (ms_crc_data = false; releases from 17 on): those that check
	// refuse the first frame, as we refuse theirs otherwise. The crc of preambles
	// and mode secure are not affected.
	NoDataCRC bool
	// Compression of frames on the wire; zero: off.
	Compression Compression

	// HandshakeTimeout bounds a connection attempt, on both sides; 0: 10 s.
	HandshakeTimeout time.Duration
	// IdleTimeout faults a connection on which nothing moved; 0: 900 s,
	// negative: never.
	IdleTimeout time.Duration
	// KeepaliveEvery sends keepalives on every connection in this interval,
	// and KeepaliveTimeout faults one whose peer does not answer them; 0:
	// never, as the user does it by Conn.Keepalive.
	KeepaliveEvery   time.Duration
	KeepaliveTimeout time.Duration
	// InitialBackoff doubles up to MaxBackoff between failed attempts; 0: 0.2
	// s and 15 s.
	InitialBackoff time.Duration
	MaxBackoff     time.Duration

	// QueueBytes and QueueMessages bound what a connection holds for sending,
	// replay included; 0: 256 MiB and 262144 messages, negative: unlimited. At
	// the bound Send fails with ErrQueueFull, and SendContext waits.
	QueueBytes    int64
	QueueMessages int64
	// DispatchBytes bounds the payload of received messages that are not
	// released yet, over all connections; 0: 100 MiB, negative: unlimited. A
	// message counts dataplane.MinDispatchShare at least.
	DispatchBytes int64
	// HalfOpen bounds the accepted connections whose handshake is under way;
	// 0: 4096. More are closed at once.
	HalfOpen int
	// Limits of received frames; zero: frame.DefaultLimits.
	Limits frame.Limits

	// Interceptor is told of every step of every handshake and of every frame,
	// and can disturb it. For tests; nil costs nothing.
	Interceptor Interceptor

	// Clock is the time of the control plane; nil: the machine's.
	Clock Clock
	// Rand is the source of cookies and nonces; nil: the system's. A
	// deterministic one makes runs repeatable.
	Rand io.Reader
	// Logger gets state changes of connections; nil is silent.
	Logger *slog.Logger

	followHints bool // reconnect by the owner hints of peers
}

// Validate returns every problem at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if c.Name.Type == 0 {
		bad("no entity name")
	}
	for _, d := range []struct {
		what string
		d    time.Duration
	}{{"handshake timeout", c.HandshakeTimeout}, {"keepalive interval", c.KeepaliveEvery}, {"keepalive timeout", c.KeepaliveTimeout},
		{"initial back-off", c.InitialBackoff}, {"maximum back-off", c.MaxBackoff}, {"bind retry delay", c.BindRetryDelay}} {
		if d.d < 0 {
			bad("negative %s", d.what)
		}
	}
	if _, err := c.Steer.rules(false); err != nil {
		errs = append(errs, err)
	}
	if r := c.HintPorts; r != (bpf.PortRange{}) && (r.First == 0 || r.Last < r.First) {
		bad("hint ports %v", r)
	}
	if r := c.BindPorts; r != (bpf.PortRange{}) && (r.First == 0 || r.Last < r.First) {
		bad("ports to bind %v", r)
	}
	if c.BindRetries < 0 {
		bad("%d bind retries", c.BindRetries)
	}
	if c.SteerTable < 0 || c.SteerTable > 1<<24 {
		bad("steering table of %d entries", c.SteerTable)
	}
	if c.MaxBackoff > 0 && c.InitialBackoff > c.MaxBackoff {
		bad("initial back-off %v above the maximum %v", c.InitialBackoff, c.MaxBackoff)
	}
	if c.HalfOpen < 0 {
		bad("%d half-open connections", c.HalfOpen)
	}
	if err := c.Compression.validate(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Plane.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.HandshakeTimeout, DefaultHandshakeTimeout)
	def(&c.IdleTimeout, DefaultIdleTimeout)
	def(&c.InitialBackoff, DefaultInitialBackoff)
	def(&c.MaxBackoff, DefaultMaxBackoff)
	def(&c.BindRetryDelay, DefaultBindRetryDelay)
	c.IdleTimeout = max(c.IdleTimeout, 0)
	bound := func(n *int64, v int64) {
		switch {
		case *n == 0:
			*n = v
		case *n < 0:
			*n = 0 // what the data plane calls unlimited
		}
	}
	bound(&c.QueueBytes, DefaultQueueBytes)
	bound(&c.QueueMessages, DefaultQueueMessages)
	bound(&c.DispatchBytes, DefaultDispatchBytes)
	if c.HalfOpen == 0 {
		c.HalfOpen = DefaultHalfOpen
	}
	if c.Limits == (frame.Limits{}) {
		c.Limits = frame.DefaultLimits()
	}
	if c.Default == nil {
		p := StatelessServer()
		if c.Name.Type == wire.Client {
			p = LossyClient()
		}
		c.Default = &p
	}
	if c.Steer == "" {
		c.Steer = SteerAuto
	}
	if c.SteerTable == 0 {
		c.SteerTable = DefaultSteerTable
	}
	rules, _ := c.Steer.rules(false) // Validate has seen it
	c.followHints = rules.Has(bpf.RuleHint) && c.Plane.Open == nil
	if c.Name.Type == wire.Client && c.Number == 0 {
		c.Number = -1
	}
	if c.AuthClient == nil {
		c.AuthClient = none.NewClient(c.Name)
	}
	if c.AuthServer == nil {
		c.AuthServer = none.NewServer(none.ServerConfig{Monitor: c.Name.Type == wire.Mon})
	}
	if c.Clock == nil {
		c.Clock = machineClock{}
	}
	if c.Rand == nil {
		c.Rand = crand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Plane.Logger == nil {
		c.Plane.Logger = c.Logger
	}
	return c
}

// random64 is a random number other than 0. The messenger's lock is held.
func (m *Messenger) random64() uint64 {
	var b [8]byte
	for {
		// The system's source does not fail; an injected one that does leaves
		// zeros, which the counter below makes unique.
		if _, err := io.ReadFull(m.cfg.Rand, b[:]); err != nil {
			m.fallbackRand++
			return m.fallbackRand
		}
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}
