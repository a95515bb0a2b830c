package control

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/gate"
	"github.com/ringmsgr/ringmsgr/control/internal/sessions"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Messenger is one endpoint: an identity, the addresses it is bound to, and
// its connections. All methods may be called by any goroutine but a core's,
// unless they say otherwise.
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
	inject   *injector // nil: nothing
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
	m.inject = newInjector(cfg.Diagnostics.Inject, &below)
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

// Start sets the dispatchers and lets connections be made and accepted. It
// may be called once, before or after Bind; until then accepted connections
// are refused.
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

// Addrs are our addresses, as peers get them: the bound ones, or the learned one of a client,
// or none yet. Any goroutine may call it, a core's too.
func (m *Messenger) Addrs() wire.AddrVec { return m.s.Addrs() }

// SetPolicy changes the policy for new connections with peers of type t; existing connections
// keep theirs.
func (m *Messenger) SetPolicy(t wire.EntityType, p Policy) { m.s.SetPolicy(t, p) }

// SetDefaultPolicy changes the policy for new connections with peers of types
// that have none of their own.
func (m *Messenger) SetDefaultPolicy(p Policy) { m.s.SetDefaultPolicy(p) }

// SetNumber sets the number of a client that a monitor has given it in messages, as in msgr1;
// the handshake of msgr2 brings it by itself. A known number stays. Messages of msgr1 name it,
// on connections that open from now on.
func (m *Messenger) SetNumber(globalID uint64) { m.s.SetNumber(globalID) }

// SetAuth replaces the authentication of connections that we make and accept, for example
// after a change of the configuration from one method to another. Nil leaves that side as it
// is.
//
// Every handshake that begins from now on uses the new ones, also in reconnects of existing
// sessions. Handshakes under way and authenticated TCP connections do not change: close those
// that may not stay. Config.Auth.Modes still holds: a messenger that requires secure mode
// refuses all peers under a method without keys.
func (m *Messenger) SetAuth(client auth.Client, server auth.Server) { m.s.SetAuth(client, server) }

// DispatchThrottle bounds the received payload that is not released yet.
func (m *Messenger) DispatchThrottle() *loop.Throttle { return m.inFlight }

// Connect returns the connection to a peer: the one that exists for that address, or a new
// one, which begins to dial. A v2: address is dialled in msgr2, a v1: address in msgr1;
// ConnectTo chooses. Messages may be sent at once: they wait until the session is ready.
//
// The address is the peer's exact one, nonce included. Nonce 0 stands for whatever process
// is there, if that uses this package; two that dial each other need their nonces, or they
// have two sessions. If the address was dialled for a daemon of another type or name
// (WithEntity), the error wraps ErrWrongPeer.
//
// A peer that came to us and says that it has the address is believed if it has the type and
// the name, unless something known speaks against it. The address is asked nevertheless, on
// another socket. If the process there does not know the session, the session ends with a
// reset event and ErrElsewhere, a little more than Config.Timeouts.Handshake after it began at
// the latest, and the next Connect dials.
//
// A dispatcher on a core may call it. A connection that we dialled is found without a lock;
// else the core waits for the lock of the sessions, which is held for changes of memory only.
func (m *Messenger) Connect(to wire.Addr, peer wire.EntityType, opts ...ConnectOption) (*Conn, error) {
	var o sessions.ConnectOptions
	for _, f := range opts {
		f(&o)
	}
	c, err := m.s.Connect(to, peer, &o)
	return connOf(c), err
}

// ConnectTo is Connect for a peer of which all addresses are known: its v2: address, or
// the v1: one if it has no other.
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

// Anonymous makes a connection that is not found by its address: a second one
// to the same peer. A bound messenger cannot combine it with a policy under
// which the peer may dial back.
func Anonymous() ConnectOption { return func(o *sessions.ConnectOptions) { o.Anonymous = true } }

// Once has the connection end with the first attempt that fails, with its
// error, instead of trying again.
func Once() ConnectOption { return func(o *sessions.ConnectOptions) { o.Once = true } }

// WithPolicy overrides the policy of the peer's type.
func WithPolicy(p Policy) ConnectOption { return func(o *sessions.ConnectOptions) { o.Policy = &p } }

// WithEntity says whom the caller wants: a connection that a peer of another name
// has made is not taken for it, and no peer of another name takes it over. The
// name must be of the type that Connect is given.
func WithEntity(name wire.EntityName) ConnectOption {
	return func(o *sessions.ConnectOptions) { o.Entity = name }
}

// OnCore has core i own the connection. Messages that a dispatcher of another connection sends
// on it never change threads if that is on the same core (Conn.Core). Without OnCore the core
// with the fewest connections gets it.
func OnCore(i int) ConnectOption {
	return func(o *sessions.ConnectOptions) { o.Core = &i }
}

// Lookup returns the connection of a peer's address, nil if there is none. It takes
// no lock. Any goroutine may call it, a core's too.
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

// Loopback is the connection to ourselves: messages that are sent on it come to our own
// dispatchers, without a socket, in order, on a goroutine of the connection. It exists once,
// is ready at once, and needs no Bind; Connect returns it for our own address. It has no
// events. After MarkDown the next call makes a new one.
func (m *Messenger) Loopback() (*Conn, error) {
	c, err := m.s.Loopback()
	return connOf(c), err
}

// Shutdown ends the messenger: it accepts no connection, closes all without events, and stops
// the cores. It waits for dispatchers and attempts under way, but not beyond ctx: then it
// returns the error of ctx, and the rest ends by itself. After it has returned nil no
// dispatcher is called. A second Shutdown, or one after a Drain that has ended everything,
// returns nil at once, even if ctx has ended.
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
