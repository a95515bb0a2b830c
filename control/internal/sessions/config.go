package sessions

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handshake2"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Config of a Manager, checked and with its defaults filled in, in the forms that the
// packages below want. 0 stands for no bound.
type Config struct {
	Name   wire.EntityName
	Number int64 // below 0: a monitor gives it
	Nonce  *uint32

	Plane      loop.Config
	Steering   steering.Config // but for Load, Logger and Waits
	Ports      bpf.PortRange   // for addresses without one
	Retries    int             // of Bind, RetryDelay apart
	RetryDelay time.Duration

	Policies   map[wire.EntityType]Policy
	Default    Policy
	MaxStandby int

	AuthClient  auth.Client
	AuthServer  auth.Server
	Handshake   handshake2.Options // of every socket: Rev0Only, Modes and NoDataCRC
	Compression Compression
	Limits      frame.Limits

	Timeout time.Duration // of a handshake
	Backoff session.Backoff
	Door    door.Config // bounds of half-open connections

	Handler dataplane.HandlerConfig // of every connection, but for its Owner
	Open    dataplane.OpenOptions   // of every socket; its session fills in the rest
	// InFlight bounds received messages of all connections, Share is the part of it that
	// each connection has for itself, ConnBytes bounds those of each connection.
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

// MachineClock is the Clock of the machine.
type MachineClock struct{}

// Now implements Clock, like AfterFunc.
func (MachineClock) Now() time.Time { return time.Now() }

// AfterFunc is [time.AfterFunc].
func (MachineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// Policy is the behaviour of a connection after faults and towards other connections (Ceph's
// Policy.h). It is data: take a named one and change fields. control/testdata/policy_pairs.md
// has the outcome of every pair of named policies; each row is a test.
type Policy struct {
	Name string // for logs and statistics

	Lossy      bool // a fault ends the connection; no message is sent again
	Server     bool // never dials: after a fault it waits for the peer
	Standby    bool // after a fault does not dial before there is a message to send, if the peer could dial us
	ResetCheck bool // a peer that lost its session resets ours: queues are dropped, with a remote reset event
	Register   bool // accepted connections are found by address, lossy ones too

	// StandbyAge is how long a session without a socket waits for its peer, before it
	// ends with a reset event and ErrExpired; 0: an hour if the policy is one of a
	// server, else for ever; negative: for ever.
	StandbyAge time.Duration
	// GiveUpAfter bounds the time for which a connection dials without an answer, since
	// Connect or the loss of its last socket. Then it ends with a reset event and
	// ErrUnanswered, and its queue is dropped. 0 or negative: it dials for ever, as Ceph
	// does. For a session in standby there is StandbyAge; that time does not count here.
	GiveUpAfter time.Duration

	// Supported and Required are feature sets. Zero Supported means
	// everything that this package knows. MSG_ADDR2 is always required.
	Supported wire.Features
	Required  wire.Features

	// Throttles on received messages, shared by all connections of the policy;
	// nil: none.
	Messages *loop.Throttle
	Bytes    *loop.Throttle
}

// rules are the policy as the session protocol has it.
func (p *Policy) rules() session.Policy {
	supported := p.Supported
	if supported == 0 {
		supported = wire.FeaturesPacific
	}
	return session.Policy{
		Lossy: p.Lossy, Server: p.Server, Standby: p.Standby, ResetCheck: p.ResetCheck, Register: p.Register,
		Supported: supported | wire.FeatureMsgAddr2, Required: p.Required | wire.FeatureMsgAddr2,
	}
}

// policySet has the policies for new connections, by the type of the peer. The messenger's
// lock guards it. A policy in it never changes: connections share it.
type policySet struct {
	of    map[wire.EntityType]*Policy
	other *Policy // for types that are not in of
}

func newPolicySet(of map[wire.EntityType]Policy, other Policy) policySet {
	s := policySet{of: make(map[wire.EntityType]*Policy, len(of)), other: &other}
	for t, p := range of {
		s.of[t] = &p
	}
	return s
}

func (s *policySet) get(t wire.EntityType) *Policy {
	if p, ok := s.of[t]; ok {
		return p
	}
	return s.other
}

func (s *policySet) set(t wire.EntityType, p Policy) {
	if t == wire.Any {
		s.other = &p
		return
	}
	s.of[t] = &p
}

// Errors of sessions. Package control says when they come, under the same names.
var (
	ErrConfig           = errors.New("control: invalid configuration")
	ErrShutdown         = fmt.Errorf("control: messenger shut down: %w", net.ErrClosed)
	ErrMarkedDown       = fmt.Errorf("control: marked down: %w", net.ErrClosed)
	ErrReplaced         = fmt.Errorf("control: replaced by a newer connection: %w", net.ErrClosed)
	ErrHandedOver       = fmt.Errorf("control: handed over to another process: %w", net.ErrClosed)
	ErrRebound          = fmt.Errorf("control: another address was bound: %w", ErrMarkedDown)
	ErrHandshakeTimeout = fmt.Errorf("control: handshake not complete in time: %w", os.ErrDeadlineExceeded)
	ErrExpired          = errors.New("control: the peer did not come back")
	ErrUnanswered       = errors.New("control: the peer does not answer")
	ErrStuck            = errors.New("control: dialling again does not help")
	ErrNotBound         = errors.New("control: not bound")
)
