package control

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/gate"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Messenger is one endpoint: an identity, its addresses, and its connections. Any goroutine may
// call its methods; that of a core only Addrs, Connect, ConnectTo, Core, Cores, DispatchThrottle,
// Driver, Failures and Lookup, as the others may wait.
type Messenger struct {
	cfg      Config
	s        *sessions.Manager
	plane    *loop.Plane
	inFlight *loop.Throttle        // received and not released yet, of all connections
	sending  *dataplane.SendBudget // queued for sending or an ack, of all connections
	lastTID  atomic.Uint64         // given to calls, or reserved by a connection for them
	started  atomic.Bool
	unbound  atomic.Bool // for good, by Drain
	ended    atomic.Bool // by a Shutdown that is complete
	chain    chain
	queues   gate.Gate // queued dispatches
}

// New makes a messenger and starts its cores. Shutdown ends it.
func New(cfg Config) (*Messenger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &Messenger{
		cfg:      cfg,
		inFlight: loop.NewThrottle(cfg.Receiving.Bytes),
		sending:  dataplane.NewSendBudget(cfg.Sending.Bytes, own(cfg.Sending.Bytes, ownSend)),
	}
	below := cfg.sessions(m.inFlight, m.sending)
	injectInto(cfg.Diagnostics.Inject, &below)
	m.chain.setSelf()
	if below.Plane.Name == "" {
		below.Plane.Name = cfg.Name.String()
	}
	var err error
	if m.s, err = sessions.New(below, owner{m}); err != nil {
		return nil, err
	}
	m.plane = m.s.Plane()
	m.lastTID.Store(m.s.Random())
	return m, nil
}

// Start sets the dispatchers and lets connections be made and accepted, once, before or after
// Bind. Until then accepted connections are refused.
func (m *Messenger) Start(chain ...*Dispatcher) error {
	if !m.started.CompareAndSwap(false, true) {
		if m.s.Down() {
			return ErrShutdown
		}
		return fmt.Errorf("%w: started twice", ErrConfig)
	}
	m.chain.list = chain
	return m.s.Start()
}

// Name is the messenger's identity.
func (m *Messenger) Name() wire.EntityName { return m.cfg.Name }

// Addrs are our addresses as peers get them: the bound ones, the learned one of a client, or
// none yet.
func (m *Messenger) Addrs() wire.AddrVec { return m.s.Addrs() }

// SetPolicy changes the policy for new connections with peers of type t. wire.Any changes
// Config.Default.
func (m *Messenger) SetPolicy(t wire.EntityType, p Policy) { m.s.SetPolicy(t, p) }

// SetNumber sets the number that a monitor has given a client in messages, as in msgr1; the
// handshake of msgr2 sets it by itself. A known number stays.
func (m *Messenger) SetNumber(globalID uint64) { m.s.SetNumber(globalID) }

// SetAuth replaces the authentication of connections that we make and accept. Nil leaves a side
// as it is.
//
// Handshakes that begin later use it, also in reconnects of existing sessions. Handshakes under
// way and authenticated connections do not change. Config.Auth.Modes still holds.
func (m *Messenger) SetAuth(client auth.Client, server auth.Server) { m.s.SetAuth(client, server) }

// DispatchThrottle is the bound Config.Receiving.Bytes: Used is the received payload that is
// not released, and SetLimit changes the bound.
func (m *Messenger) DispatchThrottle() *loop.Throttle { return m.inFlight }

// Connect returns the connection to an address: the existing one, or a new one, which begins to
// dial, in msgr2 for a v2: address, in msgr1 for a v1: address. Messages may be sent at once:
// they wait for the session.
//
// The address has the peer's nonce. Nonce 0 stands for any process there, if that uses this
// package; two that dial each other need their nonces, or they have two sessions. If the
// address was dialled for a peer of another type or name (WithEntity), the error wraps
// ErrWrongPeer.
//
// A peer that came to us and claims the address is believed if its type and name fit, and no
// known peer contradicts. Connect then also asks the address, on another socket. If the process
// there does not know the session, the session ends with a reset event and ErrElsewhere, at the
// latest about Config.Timeouts.Handshake after its begin, and the next Connect dials.
//
// A dialled connection is found without a lock; others need a lock that is held for changes of
// memory only.
func (m *Messenger) Connect(to wire.Addr, peer wire.EntityType, opts ...ConnectOption) (*Conn, error) {
	var o sessions.ConnectOptions
	for _, f := range opts {
		f(&o)
	}
	c, err := m.s.Connect(to, peer, &o)
	return connOf(c), err
}

// ConnectTo is Connect for a peer with several addresses: its v2: address, else its v1: one.
func (m *Messenger) ConnectTo(addrs wire.AddrVec, peer wire.EntityType, opts ...ConnectOption) (*Conn, error) {
	to := addrs.V2()
	if to.IsBlank() {
		to = addrs.V1()
	}
	if to.IsBlank() {
		return nil, fmt.Errorf("%w: cannot connect to %v: it has neither a v2 nor a v1 address", ErrConfig, addrs)
	}
	return m.Connect(to, peer, opts...)
}

// ConnectOption changes one Connect.
type ConnectOption func(*sessions.ConnectOptions)

// Anonymous makes a connection that is not found by its address: another one to the same peer.
// A bound messenger cannot combine it with a policy under which the peer may dial back.
func Anonymous() ConnectOption { return func(o *sessions.ConnectOptions) { o.Anonymous = true } }

// Once ends the connection with the first attempt that fails, with its error.
func Once() ConnectOption { return func(o *sessions.ConnectOptions) { o.Once = true } }

// WithPolicy overrides the policy of the peer's type.
func WithPolicy(p Policy) ConnectOption { return func(o *sessions.ConnectOptions) { o.Policy = &p } }

// WithEntity is the name of the wanted peer: Connect returns no connection of another peer, and
// no other peer takes it over. The name must be of the type that Connect gets.
func WithEntity(name wire.EntityName) ConnectOption {
	return func(o *sessions.ConnectOptions) { o.Entity = name }
}

// OnCore has core i own the connection, in place of the core with the fewest connections. A
// message that a dispatcher on that core sends on it changes no thread.
func OnCore(i int) ConnectOption {
	return func(o *sessions.ConnectOptions) { o.Core = &i }
}

// Lookup returns the connection of a peer's address, or nil. It takes no lock.
func (m *Messenger) Lookup(a wire.Addr) *Conn { return connOf(m.s.Lookup(a)) }

// Conns returns all connections that are not closed, oldest first.
func (m *Messenger) Conns() []*Conn {
	below := m.s.Conns()
	list := make([]*Conn, len(below))
	for i, c := range below {
		list[i] = connOf(c)
	}
	return list
}

// Loopback is the connection to ourselves, which is ready at once: its messages come to our own
// dispatchers, in order, on a goroutine of the connection. Connect returns it for our own
// address. It has no events. After MarkDown the next call makes a new one.
func (m *Messenger) Loopback() (*Conn, error) {
	c, err := m.s.Loopback()
	return connOf(c), err
}

// Shutdown ends the messenger: it accepts no connection, closes all without events, and stops
// the cores. It waits for dispatchers and attempts under way; when ctx ends first it returns
// that error, and the rest ends by itself. After it has returned nil no dispatcher is called.
// Another Shutdown after a complete end returns nil.
func (m *Messenger) Shutdown(ctx context.Context) error {
	if m.ended.Load() {
		return nil
	}
	wait, done := m.s.Close(), make(chan struct{})
	go func() {
		defer close(done)
		wait()
		m.queues.Close()
		m.ended.Store(true)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("control: shutdown: %w", context.Cause(ctx))
	}
}

// Bind listens on one or more addresses, each on every core, in msgr2 at a v2: address, in
// msgr1 at a v1: one, and returns them with their ports. Port 0 stands for the next free port
// of Config.Binding.Ports, or of the kernel. A port of another process is never shared: the
// error is ErrNoPort, after Config.Binding.Retries. After an error no address is bound, and the
// messenger stays usable. A messenger that never binds is a client only.
//
// An address without an IP (0.0.0.0, ::) listens on all of them. Peers then get the IP of our
// end of the first connection, or the IP by which they came.
//
// A messenger is bound once; Rebind gives it other ports.
func (m *Messenger) Bind(addrs ...wire.Addr) (wire.AddrVec, error) { return m.s.Bind(addrs...) }

// Rebind gives a bound messenger other ports and another nonce, for example when the cluster
// has declared the old address dead, and returns the new addresses. The ports come from
// Config.Binding.Ports, or from the kernel; none is a present port or in avoid. After Unbind it
// listens again.
//
// All connections are marked down, also the one to ourselves, with Conn.Err ErrRebound. For
// peers they are broken connections; peers that keep a session should mark it down, as the old
// address is gone for good.
//
// The new address accepts before the old one stops, so that an error leaves everything as it
// was: ErrNoPort, ErrShutdown, ErrHandedOver, or the cause of ctx, which bounds
// Config.Binding.Retries, and the wait for a hand-over, for changes of cores and for another
// Rebind.
//
// Owner hints and pins (PinPeer) hold for the new address. A successor (HandOver) gets the new
// nonce; its Config.Nonce must be nil.
//
// Others may send, connect and accept meanwhile.
func (m *Messenger) Rebind(ctx context.Context, avoid ...uint16) (wire.AddrVec, error) {
	return m.s.Rebind(ctx, avoid...)
}

// Unbind closes the listeners of all cores. Connections and their sessions go on, and Addrs
// does not change. Rebind listens again.
func (m *Messenger) Unbind() error { return m.s.Unbind() }

// PinPeer has new connections from peer accepted by core; port 0 stands for any port, and a pin
// with a port has precedence. It needs the rule table in Config.Steer, and a bound messenger,
// else the error is ErrUnsteered. A full table forgets the pins that were not used for longest.
// Existing connections do not move.
func (m *Messenger) PinPeer(peer netip.AddrPort, core int) error {
	return m.s.Pin(&core, func(p *bpf.Steering) error { return p.Pin(peer, core) })
}

// UnpinPeer removes a pin, if it exists.
func (m *Messenger) UnpinPeer(peer netip.AddrPort) error {
	return m.s.Pin(nil, func(p *bpf.Steering) error { return p.Unpin(peer) })
}

// AddCore starts one more core and returns its number, the lowest free one. The core listens on
// all our addresses, is steered to, and gets its share of new connections. Existing connections
// stay on their cores.
//
// With the owner hint, only cookies from now on name the new core. If no core had so high a
// number before, a peer with an older cookie may come to a core without its session, which then
// moves there.
//
// ctx bounds the wait for other changes of cores, and for a core that is stuck in a callback;
// after its error there is no new core.
func (m *Messenger) AddCore(ctx context.Context) (int, error) { return m.s.AddCore(ctx) }

// RemoveCore takes a core out of service: no new connection is placed on it, its listeners are
// closed or served by another core, its connections move to the others, and its thread ends. It
// fails with loop.ErrLastCore for the only running core.
//
// Connections move with their sockets: no message is lost, doubled or reordered, and the peer
// sees no change. The user sees Dispatcher.Move and Moved. Handshakes under way end on the core
// first. No connect is refused: the steering program moves waiting connections to another
// listener; without it another core accepts from the listening socket until a core is added
// again.
//
// A connection moves after its last write, for which a slow peer may take long. When ctx ends
// the remaining connections fault as if their TCP connection had broken, and RemoveCore returns
// that error; the removal then ends by itself.
//
// A failed core is removed in the same way. Pins to the core (PinPeer) end. Its number is the
// first to be used again.
func (m *Messenger) RemoveCore(ctx context.Context, core int) error { return m.s.RemoveCore(ctx, core) }

// Cores are the cores by number, with failed ones and those under removal. The list is shared
// and must not be changed. It takes no lock.
func (m *Messenger) Cores() []*loop.Core { return m.plane.All() }

// Core is the core with a number, or nil. It takes no lock.
func (m *Messenger) Core(i int) *loop.Core { return m.plane.Core(i) }

// Driver says what the cores opened: rings or epoll. All of them opened the same.
func (m *Messenger) Driver() uring.Info { return m.plane.Info() }

// Failures yields the error of a core whose driver broke. What it had has gone to
// the other cores, or was reset. Of several failures that nobody reads some are
// dropped.
func (m *Messenger) Failures() <-chan error { return m.plane.Failures() }
