package control

import (
	"cmp"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Config of a messenger. Only Name is required.
type Config struct {
	// Name is our own name, for example client.admin or mon.a.
	Name wire.EntityName
	// Number is our number on the wire (gid): the rank of a mon. A client with 0 takes the
	// number that a monitor gives it. An osd has the number of its name; any other number but 0
	// is an error.
	Number int64
	// Nonce makes the address of this process unique. Monitors use 0; nil: random.
	Nonce *uint32

	// Plane configures the cores, which belong to the messenger. Started and Ended are also
	// called for cores that AddCore and RemoveCore bring and take.
	Plane loop.Config
	// Steer are the rules by which the kernel finds the core of an accepted connection; empty:
	// SteerAuto. Without the kernel's support or the privilege listeners work unsteered, and
	// Stats has the reason.
	Steer   Steer
	Binding Binding

	// Policies for peers of each type, and Default for the others. A nil Default is LossyClient
	// for a client and StatelessServer for all others.
	Policies map[wire.EntityType]Policy
	Default  *Policy
	// MaxStandby bounds the sessions without a socket that wait for their peer, of policies
	// with a StandbyAge; 0: 16384, negative: unlimited. At the bound the longest waiting
	// session ends with a reset event.
	MaxStandby int

	Auth      Auth
	Protocol  Protocol
	Timeouts  Timeouts
	Sending   Sending
	Receiving Receiving
	Door      Door

	Diagnostics Diagnostics
	// Logger gets state changes of connections; nil is silent.
	Logger *slog.Logger
	// Clock is the time of the control plane; nil: the machine's.
	Clock Clock
	// Rand is the source of cookies and nonces; nil: the system's. A deterministic source makes
	// runs repeatable.
	Rand io.Reader
}

// Binding configures the choice of a free port in Bind and Rebind.
type Binding struct {
	// Ports is the range of ports for Rebind, and for Bind with port 0; zero: the kernel
	// chooses. Real daemons have 6800-7568.
	Ports bpf.PortRange
	// Retries is the number of further attempts when the ports were in use, RetryDelay apart;
	// 0: none, and 5 s.
	Retries    int
	RetryDelay time.Duration
}

// Auth is the authentication of both sides.
type Auth struct {
	// Client and Server authenticate connections that we make and accept; nil: method none.
	// Messenger.SetAuth replaces them.
	Client auth.Client
	Server auth.Server
	// Modes are the accepted modes of our own connections, whatever Client offers; nil: all.
	Modes []auth.Mode
}

// Protocol has the options of msgr2.
type Protocol struct {
	// Rev0 offers msgr2.0 only.
	Rev0 bool
	// NoDataCRC sends zeros for the crcs of segments in mode crc, and ignores the crcs of
	// peers: damage on the way goes unnoticed. All peers must have the same setting
	// (ms_crc_data = false, since release 17), else each refuses the other's frames.
	NoDataCRC bool
	// Compression of frames on the wire; zero: off.
	Compression Compression
}

// Timeouts bound how long a peer may be silent, and how long we wait before we dial again.
type Timeouts struct {
	// Handshake bounds a connection attempt, on both sides; 0: 10 s.
	Handshake time.Duration
	// Idle faults a connection without traffic; 0: 900 s, negative: never.
	Idle time.Duration
	// KeepaliveEvery is the interval of keepalives on every connection, 0: none but
	// Conn.Keepalive. A connection without an answer for Keepalive faults, 0: never. While a
	// message comes, which the answer is behind, it has Keepalive from each byte on; so it has
	// while the peer takes what is before the keepalive, if it keeps up with LeastRate.
	KeepaliveEvery, Keepalive time.Duration
	// InitialBackoff doubles up to MaxBackoff between failed attempts; 0: 0.2 s (at most
	// MaxBackoff), and 15 s.
	InitialBackoff, MaxBackoff time.Duration
}

// Sending bounds the messages that wait to be sent, or for an ack.
type Sending struct {
	// QueueBytes and QueueMessages bound the sending queue of a connection, replay included; 0:
	// 256 MiB and 262144, negative: unlimited. At the bound Send fails with ErrQueueFull.
	QueueBytes    int64
	QueueMessages int64
	// Bytes bounds the payload in the sending queues of all connections; 0: 1 GiB, negative:
	// unlimited. Each connection has a share that others cannot take: 1 MiB, at most a 64th of
	// the bound. All shares together exceed the bound by a quarter at most.
	Bytes int64
	// Calls bounds the calls under way on each connection; 0: 65536, negative: unlimited.
	Calls int
}

// Receiving bounds the messages of authenticated peers.
type Receiving struct {
	// Limits of received frames; zero: frame.DefaultLimits.
	Limits frame.Limits
	// Bytes bounds the payload of received messages that are neither released nor queued for
	// sending, over all connections; 0: 100 MiB, negative: unlimited. A message counts at least
	// loop.MinShared, an unfinished one its received part. Each connection has a share as in
	// Sending.Bytes, of 64 KiB. Above the bound compressed messages wait.
	Bytes int64
	// ConnBytes bounds the same for each connection whose policy has no Bytes throttle. A
	// larger message passes alone. 0: half of Bytes, negative: unlimited.
	ConnBytes int64
	// LeastRate is the least progress of an unfinished message in bytes per second, after
	// Grace; else the connection faults, unless we do not read it. While others wait for its
	// room the rate is 16 times as high, and Grace a tenth. The higher rate also holds for a
	// lossy peer that takes replies for whose memory others wait (Conn.ReadReply). 0: 64 KiB
	// and 10 s; negative: any rate.
	LeastRate int64
	Grace     time.Duration
	// AlignFrom is the size in bytes from which the data of a received message begins on a
	// page, for direct I/O. Smaller data than Plane.LargeFrom is copied for that. 0:
	// Plane.LargeFrom.
	AlignFrom int
	// Postings bounds the postings on each connection (Conn.PostBuffer); 0: 65536, negative:
	// unlimited. Sending.Calls bounds the buffers of requests.
	Postings int
}

// Door bounds accepted connections before authentication. A source is an IPv4 address or an
// IPv6 /64, a prefix a /24 or a /48.
type Door struct {
	// HalfOpen bounds the accepted connections in a handshake; 0: 4096. Above half of it each
	// source has a share of a 16th, and each prefix of a quarter. At a bound a newcomer takes
	// the place of the connection that was silent for longest, at least a quarter of a second.
	// Otherwise it waits for a place, up to 2 s; if half as many wait already it is refused. As
	// many again may be in line or about to end.
	HalfOpen int
	// Bytes bounds the bytes that the handshakes of all accepted connections keep, beyond 8 KiB
	// for each; 0: 16 MiB, negative: unlimited.
	Bytes int64
	// FailureRate bounds the failed connections of a source in a second, FailureBurst those at
	// once: their handshake fails or is evicted, or they end within Timeouts.MaxBackoff without
	// a message or ack. Above that newcomers of the source wait, up to 2 s, or are refused; a
	// successful handshake makes place for the next at once. A prefix has four times as much.
	// 0: 100 and 1000, negative: unlimited.
	FailureRate, FailureBurst int
}

// Diagnostics observe a messenger, or disturb it. A zero field costs nothing.
type Diagnostics struct {
	// Requests follow requests and their replies, as tracing does.
	Requests *RequestHooks
	// Tracer gets every frame, in clear, also of handshakes. Package control/trace has one that
	// writes a file.
	Tracer probe.Tracer
	// KeyLog gets a line for each connection in mode secure, with the secret that decrypts a
	// recording of it ("ringmsgr decode --keys"); trace.CreateKeys opens a file for it. It is for
	// debugging only, and New warns of it. Handshakes and Shutdown wait for the writer, as for a pipe that
	// nobody reads. Its error is logged. nil: no secret leaves the messenger.
	KeyLog io.Writer
	// Probe is asked at every step of a handshake and at every frame, and can disturb them. Its
	// connections are *Conn. For tests.
	Probe probe.Probe
	// Inject has the messenger disturb itself, for tests of programs on it.
	Inject probe.Inject
}

// Steer names the rules by which the kernel chooses the core of a new connection: one name, or
// several joined by commas ("table,cpu"). Their order is table, hint, CPU; the kernel's hash
// decides the rest. Package bpf has the details.
type Steer = steering.Mode

// The ways to steer.
const (
	// SteerAuto is the table and the hint, and with pinned cores the CPU.
	SteerAuto = steering.Auto
	// SteerNone loads no program, gives no hints and follows none.
	SteerNone = steering.None
	// SteerCPU takes the core of the CPU that took the SYN.
	SteerCPU = steering.CPU
	// SteerHint takes the core that the peer's source port names.
	SteerHint = steering.Hint
	// SteerTable takes the core that PinPeer set for the peer's address.
	SteerTable = steering.Table
)

// ParseSteer checks s. The empty string is SteerAuto.
func ParseSteer(s string) (Steer, error) {
	st := Steer(s)
	if s == "" {
		st = SteerAuto
	}
	if _, err := st.Rules(false); err != nil {
		return st, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return st, nil
}

// Compression of frames on the wire; go doc control/internal/sessions.Compression has its fields.
type Compression = sessions.Compression

// Clock is the time of the control plane: back-off, deadlines of handshakes. A simulation brings
// its own (go doc control/internal/sessions.Clock).
type Clock = sessions.Clock

// Surviving is c for both sides of a service whose sessions survive TCP connections, and whose
// clients find a restarted server within 2 s. A client has LosslessClient for its peers; others
// have StatefulServer for clients and LosslessPeerReuse for the rest. Keepalives find a dead
// peer within 20 s. Fields that are set in c stay.
func (c Config) Surviving() Config {
	rest := LosslessClient()
	if c.Name.Type != wire.Client {
		rest = LosslessPeerReuse()
		clients := map[wire.EntityType]Policy{wire.Client: StatefulServer()}
		maps.Copy(clients, c.Policies)
		c.Policies = clients
	}
	c.Default = cmp.Or(c.Default, &rest)
	c.Timeouts.MaxBackoff = cmp.Or(c.Timeouts.MaxBackoff, 2*time.Second)
	c.Timeouts.KeepaliveEvery = cmp.Or(c.Timeouts.KeepaliveEvery, 5*time.Second)
	c.Timeouts.Keepalive = cmp.Or(c.Timeouts.Keepalive, 15*time.Second)
	return c
}

// Validate returns every problem at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if c.Name.Type == 0 {
		bad("no entity name")
	} else if c.Name.ID == "" {
		bad("entity name without an ID: a name is TYPE.ID, such as client.admin")
	}
	if n, err := osdNumber(c.Name, c.Number); err != nil {
		bad("%w", err)
	} else if c.Number != 0 && c.Number != n {
		bad("number %d for %v", c.Number, c.Name)
	}
	for what, n := range map[string]int64{
		"handshake timeout": int64(c.Timeouts.Handshake), "keepalive interval": int64(c.Timeouts.KeepaliveEvery),
		"keepalive timeout": int64(c.Timeouts.Keepalive), "initial back-off": int64(c.Timeouts.InitialBackoff),
		"maximum back-off": int64(c.Timeouts.MaxBackoff), "bind retry delay": int64(c.Binding.RetryDelay),
		"message grace": int64(c.Receiving.Grace), "number of bind retries": int64(c.Binding.Retries),
		"size of data to be aligned": int64(c.Receiving.AlignFrom), "number of half-open connections": int64(c.Door.HalfOpen),
	} {
		if n < 0 {
			bad("negative %s", what)
		}
	}
	if _, err := c.Steer.Rules(false); err != nil {
		bad("%w", err)
	}
	if r := c.Binding.Ports; r != (bpf.PortRange{}) && (r.First == 0 || r.Last < r.First) {
		bad("ports to bind %v", r)
	}
	if t := c.Timeouts; t.MaxBackoff > 0 && t.InitialBackoff > t.MaxBackoff {
		bad("initial back-off %v above the maximum %v", t.InitialBackoff, t.MaxBackoff)
	}
	if err := c.Protocol.Compression.Validate(); err != nil {
		errs = append(errs, err)
	}
	checkInject(&c.Diagnostics.Inject, bad)
	if err := c.Plane.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// osdNumber is the number of an osd, which is its name, and other for everybody else.
func osdNumber(name wire.EntityName, other int64) (int64, error) {
	if name.Type != wire.OSD {
		return other, nil
	}
	n, err := strconv.ParseInt(name.ID, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the id of %v is not a number", name)
	}
	return n, nil
}

// setBound fills in the default for 0, and turns a negative bound, which is none, into 0.
func setBound[T int | int64 | time.Duration](n *T, standard T) {
	if *n == 0 {
		*n = standard
	}
	*n = max(*n, 0)
}

// withDefaults fills in the defaults, those of real daemons if they have one (Ceph's
// ProtocolV2.cc); from then on 0 stands for no bound.
func (c Config) withDefaults() Config {
	setBound(&c.Binding.RetryDelay, 5*time.Second)
	setBound(&c.MaxStandby, 16384)
	t := &c.Timeouts
	setBound(&t.Handshake, 10*time.Second)
	setBound(&t.Idle, dataplane.DefaultIdleAfter)
	setBound(&t.MaxBackoff, 15*time.Second)
	setBound(&t.InitialBackoff, min(200*time.Millisecond, t.MaxBackoff))
	s := &c.Sending
	setBound(&s.QueueBytes, dataplane.DefaultQueueBytes)
	setBound(&s.QueueMessages, dataplane.DefaultQueueMessages)
	setBound(&s.Bytes, 1<<30)
	setBound(&s.Calls, 64<<10)
	r := &c.Receiving
	setBound(&r.Bytes, 100<<20)
	setBound(&r.ConnBytes, r.Bytes/2)
	setBound(&r.LeastRate, dataplane.DefaultLeastRate)
	setBound(&r.Grace, dataplane.DefaultMessageGrace)
	setBound(&r.Postings, 64<<10)
	d := &c.Door
	setBound(&d.HalfOpen, 4096)
	setBound(&d.Bytes, 16<<20)
	setBound(&d.FailureRate, 100)
	setBound(&d.FailureBurst, 1000)
	if d.FailureRate == 0 || d.FailureBurst == 0 {
		d.FailureRate, d.FailureBurst = 0, 0 // unlimited
	}
	r.Limits = cmp.Or(r.Limits, frame.DefaultLimits())
	if c.Default == nil {
		p := StatelessServer()
		if c.Name.Type == wire.Client {
			p = LossyClient()
		}
		c.Default = &p
	}
	c.Steer = cmp.Or(c.Steer, SteerAuto)
	if c.Name.Type == wire.Client && c.Number == 0 {
		c.Number = -1
	}
	c.Number, _ = osdNumber(c.Name, c.Number) // Validate has seen it
	if c.Auth.Client == nil {
		c.Auth.Client = none.NewClient(c.Name)
	}
	if c.Auth.Server == nil {
		c.Auth.Server = none.NewServer(none.ServerConfig{Monitor: c.Name.Type == wire.Mon})
	}
	c.Clock = cmp.Or[Clock](c.Clock, sessions.MachineClock{})
	c.Rand = cmp.Or(c.Rand, crand.Reader)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Plane.Logger = cmp.Or(c.Plane.Logger, c.Logger)
	return c
}

// The parts of the messenger's budgets that others cannot take from a
// connection, in bytes.
const (
	ownSend     = 1 << 20
	ownDispatch = 64 << 10
)

// sessions is the configuration of package sessions; c has its defaults filled in.
func (c *Config) sessions(inFlight *loop.Throttle, sending *dataplane.SendBudget) sessions.Config {
	t, r, d := &c.Timeouts, &c.Receiving, &c.Diagnostics
	return sessions.Config{
		Name: c.Name, Number: c.Number, Nonce: c.Nonce, Plane: c.Plane,
		Steering: steering.For(c.Steer, c.Plane.Pin, c.Plane.Open != nil),
		Ports:    c.Binding.Ports, Retries: c.Binding.Retries, RetryDelay: c.Binding.RetryDelay,
		Policies: c.Policies, Default: *c.Default, MaxStandby: c.MaxStandby,
		AuthClient: c.Auth.Client, AuthServer: c.Auth.Server,
		Handshake:   handshake2.Options{Rev0Only: c.Protocol.Rev0, Modes: c.Auth.Modes, NoDataCRC: c.Protocol.NoDataCRC},
		Compression: c.Protocol.Compression, Limits: r.Limits,
		Timeout: t.Handshake, Backoff: session.Backoff{Initial: t.InitialBackoff, Max: t.MaxBackoff},
		Door: c.door(),
		Handler: dataplane.HandlerConfig{
			QueueBytes: forPlane(c.Sending.QueueBytes), QueueMessages: forPlane(c.Sending.QueueMessages), Budget: sending,
		},
		Open: dataplane.OpenOptions{
			IdleAfter: forPlane(t.Idle), KeepaliveEvery: t.KeepaliveEvery, KeepaliveTimeout: t.Keepalive,
			LeastRate: forPlane(r.LeastRate), MessageGrace: r.Grace, AlignFrom: r.AlignFrom,
		},
		InFlight: inFlight, Share: own(r.Bytes, ownDispatch), ConnBytes: r.ConnBytes,
		Probe: d.Probe, Tracer: d.Tracer, KeyLog: d.KeyLog, Clock: c.Clock, Rand: c.Rand, Logger: c.Logger,
	}
}

// longestWait bounds the wait of an accepted socket for its handshake. As many may wait as
// begin in that time.
const longestWait = 2 * time.Second

// door is the configuration of the bounds of half-open connections.
func (c *Config) door() door.Config {
	d := door.Shares(c.Door.HalfOpen).Waiting()
	d.Bytes = c.Door.Bytes
	d.Rate = door.Rate{
		PerSecond: c.Door.FailureRate, Burst: c.Door.FailureBurst, Clock: c.Clock, Kept: c.Door.HalfOpen,
		Line: max(c.Door.FailureRate*int(longestWait/time.Second), 8), Longest: longestWait,
	}
	return d
}

// random is a random number other than 0.
func random(from io.Reader) uint64 {
	var b [8]byte
	_, _ = io.ReadFull(from, b[:]) // the system's source never fails
	return max(1, binary.LittleEndian.Uint64(b[:]))
}

// forPlane turns a bound after withDefaults, where 0 means none, into a bound of the data
// plane, where 0 is the default and a negative one means none.
func forPlane[T int | int64 | time.Duration](n T) T {
	if n == 0 {
		return -1
	}
	return n
}

// own is the share of one connection in a bound.
func own(bound, most int64) int64 { return min(bound/64, most) }

// Policy is the behaviour of a connection after faults and towards other connections (Ceph's
// Policy.h). It is data: take a named one and change fields (go doc
// control/internal/sessions.Policy). testdata/policy_pairs.md has the outcome of every pair of
// named policies.
type Policy = sessions.Policy

// LossyClient dials; a fault of the session ends it.
func LossyClient() Policy {
	return Policy{Name: "lossy-client", Lossy: true, Register: true}
}

// LosslessClient dials, and keeps the session over faults.
func LosslessClient() Policy {
	return Policy{Name: "lossless-client", ResetCheck: true, Register: true}
}

// LosslessPeer is for two ends that both may dial.
func LosslessPeer() Policy {
	return Policy{Name: "lossless-peer", Standby: true, Register: true}
}

// LosslessPeerReuse is LosslessPeer, but a peer that comes back without its
// session resets ours.
func LosslessPeerReuse() Policy {
	return Policy{Name: "lossless-peer-reuse", Standby: true, ResetCheck: true, Register: true}
}

// StatefulServer accepts lossless clients.
func StatefulServer() Policy {
	return Policy{Name: "stateful-server", Server: true, Standby: true, ResetCheck: true, Register: true}
}

// StatelessServer accepts lossy clients and keeps no session.
func StatelessServer() Policy {
	return Policy{Name: "stateless-server", Lossy: true, Server: true}
}

// StatelessRegisteredServer is StatelessServer, but a second connection from an address ends
// the first.
func StatelessRegisteredServer() Policy {
	return Policy{Name: "stateless-registered-server", Lossy: true, Server: true, Register: true}
}

var policies = []func() Policy{
	LossyClient, LosslessClient, LosslessPeer, LosslessPeerReuse, StatefulServer, StatelessServer, StatelessRegisteredServer,
}

// PolicyNames are the names that ParsePolicy knows.
func PolicyNames() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p().Name)
	}
	return names
}

// ParsePolicy returns a policy by its name, for example "lossless-peer".
func ParsePolicy(name string) (Policy, error) {
	if i := slices.Index(PolicyNames(), name); i >= 0 {
		return policies[i](), nil
	}
	return Policy{}, fmt.Errorf("%w: policy %q, want one of %v", ErrConfig, name, PolicyNames())
}
