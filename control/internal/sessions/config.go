package sessions

import (
	"io"
	"log/slog"
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
