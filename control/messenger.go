package control

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/session"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/ration"
)

// Messenger is one endpoint: an identity, the addresses it is bound to, and
// its connections. All methods may be called by any goroutine but a core's,
// unless they say otherwise.
type Messenger struct {
	cfg         Config
	plane       *dataplane.Plane
	compression *compression
	inFlight    *dataplane.Throttle   // received and not released yet, of all connections
	sending     *dataplane.SendBudget // queued for sending or an ack, of all connections
	lastTID     atomic.Uint64         // given to calls, or reserved by a connection for them
	sockets     atomic.Uint64         // numbers sockets for the probe
	keyLog      func(authDone, secret []byte)
	unbound     atomic.Bool  // for good, by Drain
	arriving    atomic.Int64 // accepted sockets that are not counted as half open yet
	auth        atomic.Pointer[authPair]

	chain         chain
	notifications notificationQueue
	work          waitGroup // handshakes
	up            upward
	queues        waitGroup       // queued dispatches
	turns         placement.Turns // of cores
	door          *door.Door      // who may be half open
	dials         dials           // of ours, by the address that is dialled
	lines         *ration.Logger  // about what peers do
	random        randomSource
	binder        *binding.Binder
	listeners     binding.Listeners
	steering      *steering.Steerer                // of the listeners
	hints         *steering.Hints                  // of peers
	resizing      *resize.Resizer[*dataplane.Core] // its Lock is held while cores or listeners come and go

	// mu guards what follows and the sessions of all connections.
	mu      protocolLock
	started bool
	down    bool // Shutdown was called
	ctx     context.Context
	cancel  context.CancelCauseFunc
	identity
	local     *Conn // to ourselves; nil: none
	number    int64 // gid: configured, or given by a monitor
	globalSeq session.GlobalSeq
	asker     asker     // of the step under way
	inject    *injector // nil: nothing
	// globalSeq1 counts the attempts of msgr1, which have 32 bits.
	globalSeq1 session.GlobalSeq
	policies   policySet
	handing    handover.State
	names      names              // which connections go by which address
	all        map[*Conn]struct{} // not closed yet, anonymous ones too
	lingering  lingering
	standbys   standbys
	halfOpen   int
	ended      endedSessions
	counters   Counters
}

// New makes a messenger and starts its cores. Shutdown ends it.
func New(cfg Config) (*Messenger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &Messenger{
		cfg:           cfg,
		inFlight:      dataplane.NewThrottle(cfg.DispatchBytes),
		sending:       dataplane.NewSendBudget(cfg.SendBytes, own(cfg.SendBytes, ownSend)),
		notifications: newNotificationQueue(),
		number:        cfg.Number,
		policies:      newPolicySet(cfg.Policies, *cfg.Default),
		names:         newNames(),
		all:           make(map[*Conn]struct{}),
		lingering:     make(lingering),
		door:          newDoor(&cfg),
	}
	m.up = upward{dial: (*dialling).run, checkClaim: checkClaim}
	m.mu.close = func(c *Conn) { c.s.close(false, ErrMarkedDown) }
	m.standbys.most, m.standbys.clock, m.standbys.lock = cfg.MaxStandby, cfg.Clock, &m.mu
	m.standbys.expire = func(c *Conn) { c.s.expire() }
	m.random.from, m.random.check = cfg.Rand, &m.mu.check
	m.inject = newInjector(&cfg, m.random.next)
	m.cfg.Logger, m.cfg.Probe = m.mu.check.logger(cfg.Logger), m.mu.check.probe(cfg.Probe)
	m.keyLog = keyLogger(cfg.KeyLog, m.cfg.Logger)
	m.lines = ration.New(m.cfg.Logger, cfg.Clock.Now)
	m.auth.Store(&authPair{cfg.AuthClient, cfg.AuthServer})
	m.binder, m.steering = m.newBinder(), m.newSteerer(bpf.Load)
	m.hints = steering.NewHints(steering.HintsConfig{Follow: cfg.followHints, Ports: cfg.HintPorts, Now: cfg.Clock.Now, Lines: m.lines})
	m.chain.setSelf()
	m.asker.begin(m)
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.resizing = resize.New(m.ctx, resizing{m})
	if cfg.Nonce != nil {
		m.nonce = *cfg.Nonce
	} else {
		var b [4]byte
		if _, err := io.ReadFull(cfg.Rand, b[:]); err != nil {
			return nil, fmt.Errorf("control: nonce: %w", err)
		}
		m.nonce = binary.LittleEndian.Uint32(b[:])
	}
	m.lastTID.Store(m.random.next())
	var err error
	if m.compression, err = cfg.Compression.start(); err != nil {
		return nil, err
	}
	cfg.Plane.Failed = m.failedFirst(cfg.Plane.Failed)
	m.showCores(&cfg)
	if cfg.Plane.Name == "" {
		cfg.Plane.Name = cfg.Name.String()
	}
	plane, err := dataplane.New(cfg.Plane)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	m.plane = plane
	m.mu.check.watch(plane)
	go m.readNotifications()
	return m, nil
}

// Start sets the dispatchers and lets connections be made and accepted. It
// may be called once, before or after Bind; until then accepted connections
// are refused.
func (m *Messenger) Start(chain ...*Dispatcher) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return ErrShutdown
	}
	if m.started {
		return fmt.Errorf("%w: started twice", ErrConfig)
	}
	m.chain.list = chain
	m.started = true
	return nil
}

// Name is the messenger's identity.
func (m *Messenger) Name() wire.EntityName { return m.cfg.Name }

// Addrs are the addresses that peers are told: the bound ones, or the learned
// one of a client, or none yet. Any goroutine may call it, a core's too.
func (m *Messenger) Addrs() wire.AddrVec {
	if addrs := m.shown.Load(); addrs != nil {
		return slices.Clone(*addrs)
	}
	return nil
}

// SetPolicy changes the policy for new connections with peers of type t;
// those that exist keep theirs.
func (m *Messenger) SetPolicy(t wire.EntityType, p Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies.set(t, p)
}

// SetDefaultPolicy changes the policy for new connections with peers of types
// that have none of their own.
func (m *Messenger) SetDefaultPolicy(p Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies.other = &p
}

// DispatchThrottle bounds the received payload that is not released yet.
func (m *Messenger) DispatchThrottle() *dataplane.Throttle { return m.inFlight }

// Connect returns the connection to a peer: the one that exists for that
// address, or a new one, which begins to dial: in msgr2 a v2: address, in msgr1 a v1:
// one (ConnectTo chooses). The address must be the peer's
// exact one, nonce included; a nonce of 0 stands for whoever is there, if that is a
// process of ours (two that dial each other need their nonces, or they have two
// sessions). The type must be right, too: if that address was
// dialled for a daemon of another type, or name (WithEntity), the error wraps
// ErrWrongPeer. A peer that came to us and says that it has the address is
// believed as long as it has the type and the name, and nothing is known that
// speaks against it, but the address is asked, on another socket: if who is
// there does not know the session it ends with a reset event and ErrElsewhere, a
// little more than Config.HandshakeTimeout after it began at the latest, and the next
// Connect dials. See package session. Messages may be sent at once: they
// wait until the session is ready. A dispatcher on a core may call it: a connection
// that we dialled is found without a lock. Else the core waits for the messenger's
// lock, as others do: while memory is changed, and for no more than a look at every
// connection.
func (m *Messenger) Connect(to wire.Addr, peer wire.EntityType, opts ...ConnectOption) (*Conn, error) {
	o := connectOptions{}
	for _, f := range opts {
		f(&o)
	}
	if c, err := m.connected(to, peer, &o); c != nil || err != nil {
		return c, err
	}
	numbers, now := m.drawNumbers(), m.cfg.Clock.Now()
	m.mu.LockAnywhere()
	defer m.mu.Unlock()
	if m.down {
		return nil, ErrShutdown
	}
	if !m.started {
		return nil, fmt.Errorf("%w: Connect before Start", ErrConfig)
	}
	if to.Type != wire.AddrMsgr2 && !isMsgr1(to) || to.IsBlank() || to.AddrPort.Port() == 0 {
		return nil, fmt.Errorf("%w: cannot connect to %v: want v2:IP:PORT/NONCE or v1:IP:PORT/NONCE", ErrConfig, to)
	}
	if isMsgr1(to) {
		if err := m.cfg.msgr1(); err != nil {
			return nil, err
		}
	}
	if o.entity != (wire.EntityName{}) && o.entity.Type != peer {
		return nil, fmt.Errorf("%w: %v is no %v", ErrConfig, o.entity, peer)
	}
	if m.addrs.Contains(to) {
		return m.loopback(), nil
	}
	if !o.anonymous {
		c, claimed, err := m.names.to(to, peer, o.entity)
		if err != nil {
			return nil, err
		}
		if c != nil {
			if claimed {
				checkClaim(c, now)
			}
			return c, nil
		}
	}
	policy := m.policies.get(peer)
	if o.policy != nil {
		policy = o.policy
	}
	if !policy.Lossy && m.handing.Frozen() {
		return nil, ErrHandedOver
	}
	if policy.Server {
		return nil, fmt.Errorf("%w: policy %s does not dial", ErrConfig, policy.Name)
	}
	if o.anonymous && m.bound && policy.Standby {
		return nil, fmt.Errorf("%w: an anonymous connection cannot have policy %s: the peer may dial back, and would not find it", ErrConfig, policy.Name)
	}
	core, by, err := m.place(&o)
	if err != nil {
		return nil, err
	}
	ns := m.newSession(policy, session.Peer{
		Target: to, Dialled: true, Anonymous: o.anonymous, Addrs: wire.AddrVec{to}, Type: peer, Entity: o.entity,
	})
	ns.Once = o.once
	c := m.newConn(core, policy, ns)
	c.shown.place = Placement{Core: core.ID(), Intended: core.ID(), By: by}
	if !o.anonymous {
		m.names.add(to, c)
	}
	c.s.stepWith(session.Connect{}, numbers)
	return c, nil
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

// connected is the connection to a peer that exists already, nil for none that needs
// no check. It takes no lock. Any goroutine, a core's too.
func (m *Messenger) connected(to wire.Addr, peer wire.EntityType, o *connectOptions) (*Conn, error) {
	switch {
	case o.anonymous, o.entity != (wire.EntityName{}) && o.entity.Type != peer:
		return nil, nil
	case m.isOurs(to):
		if c := m.names.found(to); c != nil && c.local {
			return c, nil
		}
		return nil, nil
	}
	c, claimed, err := m.names.to(to, peer, o.entity)
	if claimed {
		return nil, nil
	}
	return c, err
}

// isOurs says whether peers are told the address. It takes no lock.
func (m *Messenger) isOurs(a wire.Addr) bool {
	addrs := m.shown.Load()
	return addrs != nil && addrs.Contains(a)
}

// ConnectOption changes one Connect.
type ConnectOption func(*connectOptions)

type connectOptions struct {
	anonymous, once, hasCore bool
	core                     int
	with                     *Conn
	policy                   *Policy
	entity                   wire.EntityName
}

// Anonymous makes a connection that is not found by its address: a second one
// to the same peer. A bound messenger cannot combine it with a policy under
// which the peer may dial back.
func Anonymous() ConnectOption { return func(o *connectOptions) { o.anonymous = true } }

// Once has the connection end with the first attempt that fails, with its
// error, instead of trying again.
func Once() ConnectOption { return func(o *connectOptions) { o.once = true } }

// WithPolicy overrides the policy of the peer's type.
func WithPolicy(p Policy) ConnectOption { return func(o *connectOptions) { o.policy = &p } }

// WithEntity says whom the caller wants: a connection that a peer of another name
// has made is not taken for it, and no peer of another name takes it over. The
// name must be of the type that Connect is given.
func WithEntity(name wire.EntityName) ConnectOption {
	return func(o *connectOptions) { o.entity = name }
}

// OnCore has core i own the connection.
func OnCore(i int) ConnectOption {
	return func(o *connectOptions) { o.core, o.hasCore = i, true }
}

// Lookup returns the connection of a peer's address, nil if there is none. It takes
// no lock. Any goroutine may call it, a core's too.
func (m *Messenger) Lookup(a wire.Addr) *Conn { return m.names.found(a) }

// Conns returns all connections that are not closed, oldest first.
func (m *Messenger) Conns() []*Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sorted()
}

// Shutdown ends the messenger: no connection is accepted any more, all are
// closed without events, the cores stop. It waits for what is under way, but
// not beyond ctx: then it returns its error, and the rest ends by itself.
// After it has returned nil no dispatcher is called.
func (m *Messenger) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	first := !m.down
	m.down = true
	listeners, taken := m.listeners.Take()
	for _, c := range m.sorted() {
		c.s.close(false, ErrShutdown)
	}
	m.lingering.endAll(nil, false)
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.ended.timer.end()
		m.steering.Close(taken)
		binding.Close(listeners)
		m.cancel(ErrShutdown)
		m.door.Close()
		m.work.close()
		m.mu.outboxes.close()
		if first {
			_ = m.plane.Close() // this is no core
			close(m.notifications.stop)
		}
		<-m.notifications.done
		m.queues.close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("control: shutdown: %w", context.Cause(ctx))
	}
}
