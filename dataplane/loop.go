package dataplane

import "github.com/ringmsgr/ringmsgr/dataplane/loop"

// These are the parts of package loop that users of handlers need, under the
// names that they have there.
type (
	// Plane is a group of cores.
	Plane = loop.Plane
	// Config is that of a plane.
	Config = loop.Config
	// ReceiveMode is how a connection receives.
	ReceiveMode = loop.ReceiveMode
	// Why is why a connection, or a core, receives as it does.
	Why = loop.Why
	// Core is one thread with its driver and sockets.
	Core = loop.Core
	// CoreState says whether a core can be given work.
	CoreState = loop.CoreState
	// Link is a socket during its handshake.
	Link = loop.Link
	// Listener accepts connections on one core.
	Listener = loop.Listener
	// Throttle bounds what received messages take up.
	Throttle = loop.Throttle
	// Throttles are the receive budget of one connection.
	Throttles = loop.Throttles
)

// The receive modes.
const (
	ReceiveAuto    = loop.ReceiveAuto
	ReceiveBuffers = loop.ReceiveBuffers
	ReceiveReady   = loop.ReceiveReady
)

// The states of a core.
const (
	CoreRunning  = loop.CoreRunning
	CoreDraining = loop.CoreDraining
	CoreFailed   = loop.CoreFailed
	CoreStopped  = loop.CoreStopped
)

// Defaults and bounds of the loop.
const (
	DefaultPoolKeep   = loop.DefaultPoolKeep
	DefaultStallAfter = loop.DefaultStallAfter
	MinShared         = loop.MinShared
)

// Errors of the loop.
var (
	ErrConfig       = loop.ErrConfig
	ErrStopped      = loop.ErrStopped
	ErrStalled      = loop.ErrStalled
	ErrOnCore       = loop.ErrOnCore
	ErrNoCore       = loop.ErrNoCore
	ErrLastCore     = loop.ErrLastCore
	ErrCoreRemoved  = loop.ErrCoreRemoved
	ErrLinkClosed   = loop.ErrLinkClosed
	ErrNotListening = loop.ErrNotListening
	ErrPeerClosed   = loop.ErrPeerClosed
)

// New starts the cores, and waits until each has opened its driver.
func New(cfg Config) (*Plane, error) { return loop.New(cfg) }

// NewThrottle makes a throttle; limit <= 0 means unlimited.
func NewThrottle(limit int64) *Throttle { return loop.NewThrottle(limit) }
