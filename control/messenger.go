package control

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/old"
)

// Messenger is one endpoint: an identity, the addresses it is bound to, and
// its connections. All methods may be called by any goroutine but a core's,
// unless they say otherwise.
type Messenger struct {
	cfg         Config
	plane       *dataplane.Plane
	compression *compression
	inFlight    *dataplane.Throttle // received and not released yet, of all connections
	dropped     atomic.Uint64       // messages that no dispatcher took
	sockets     atomic.Uint64       // numbers sockets for the interceptor
	arriving    atomic.Int64        // accepted sockets that are not counted as half open yet
	auth        atomic.Pointer[authPair]

	chain     []*Dispatcher // set by Start, then fixed
	self      Dispatcher    // of the connection to ourselves
	notes     notebook
	stopNotes chan struct{}
	notesDone chan struct{}
	work      gate // handshakes
	queues    gate // queued dispatches
	load      loader
	resizing  chan struct{} // capacity 1: held while cores come and go

	// mu guards what follows and the protocol state of all connections. It is
	// never held over I/O, and no core takes it.
	mu           sync.Mutex
	started      bool
	down         bool // Shutdown was called
	ctx          context.Context
	cancel       context.CancelCauseFunc
	addrs        wire.AddrVec // bound, or learned
	bound        bool
	unbinds      uint64       // calls of Unbind
	places       []netip.Addr // what addrs are bound to, before any was learned; nil after a hand-over
	nonce        uint32
	local        *Conn // to ourselves; nil: none
	number       int64 // gid: configured, or given by a monitor
	globalSeq    uint64
	policies     map[wire.EntityType]Policy
	fallback     Policy // for types that policies does not have
	listeners    []*dataplane.Listener
	handing      handing
	steer        *steering                // of the listeners, nil before Bind
	pins         bool                     // the steering table has been used
	noHints      map[netip.Addr]time.Time // peers without owner hints, and until when
	conns        map[wire.Addr]*Conn      // findable by the peer's first address
	all          map[*Conn]struct{}       // not closed yet, anonymous ones too
	halfOpen     int
	ended        endedSessions
	nextCore     int
	fallbackRand uint64
	counters     Counters
}

// New makes a messenger and starts its cores. Shutdown ends it.
func New(cfg Config) (*Messenger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &Messenger{
		cfg:       cfg,
		inFlight:  dataplane.NewThrottle(cfg.DispatchBytes),
		stopNotes: make(chan struct{}),
		notesDone: make(chan struct{}),
		number:    cfg.Number,
		policies:  make(map[wire.EntityType]Policy),
		fallback:  *cfg.Default,
		conns:     make(map[wire.Addr]*Conn),
		all:       make(map[*Conn]struct{}),
		load:      bpf.Load,
		resizing:  make(chan struct{}, 1),
	}
	m.auth.Store(&authPair{cfg.AuthClient, cfg.AuthServer})
	m.self = m.selfDispatcher()
	m.notes.more = make(chan struct{}, 1)
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	for t, p := range cfg.Policies {
		m.policies[t] = p
	}
	if cfg.Nonce != nil {
		m.nonce = *cfg.Nonce
	} else {
		var b [4]byte
		if _, err := io.ReadFull(cfg.Rand, b[:]); err != nil {
			return nil, fmt.Errorf("control: nonce: %w", err)
		}
		m.nonce = binary.LittleEndian.Uint32(b[:])
	}
	var err error
	if m.compression, err = cfg.Compression.start(); err != nil {
		return nil, err
	}
	cfg.Plane.Failed = m.failedFirst(cfg.Plane.Failed)
	plane, err := dataplane.New(cfg.Plane)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	m.plane = plane
	go m.readNotes()
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
	m.chain = chain
	m.started = true
	return nil
}

// Plane is the messenger's group of cores.
func (m *Messenger) Plane() *dataplane.Plane { return m.plane }

// Name is the messenger's identity.
func (m *Messenger) Name() wire.EntityName { return m.cfg.Name }

// Addrs are the addresses that peers are told: the bound ones, or the learned
// one of a client, or none yet.
func (m *Messenger) Addrs() wire.AddrVec {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(wire.AddrVec(nil), m.addrs...)
}

// SetPolicy changes the policy for new connections with peers of type t;
// those that exist keep theirs.
func (m *Messenger) SetPolicy(t wire.EntityType, p Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies[t] = p
}

// SetDefaultPolicy changes the policy for new connections with peers of types
// that have none of their own.
func (m *Messenger) SetDefaultPolicy(p Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fallback = p
}

// DispatchThrottle bounds the received payload that is not released yet.
func (m *Messenger) DispatchThrottle() *dataplane.Throttle { return m.inFlight }

// policyFor is the policy for a peer type. The lock is held.
func (m *Messenger) policyFor(t wire.EntityType) Policy {
	if p, ok := m.policies[t]; ok {
		return p
	}
	return m.fallback
}

// nextGlobalSeq numbers a connection attempt, above atLeast. The lock is held.
func (m *Messenger) nextGlobalSeq(atLeast uint64) uint64 {
	m.globalSeq = max(m.globalSeq, atLeast) + 1
	return m.globalSeq
}

// learn takes over the address under which a peer sees us, if we know none, or
// have one without an IP: of the address only the IP, never the port or the
// nonce (msgr2.md 7.2.1, as the classic implementation does it). The lock is
// held.
func (m *Messenger) learn(seen wire.Addr) {
	if seen.IsBlank() {
		return
	}
	if len(m.addrs) == 0 {
		m.addrs = wire.AddrVec{seen.WithType(wire.AddrAny).WithPort(0).WithNonce(m.nonce)}
		return
	}
	for i, a := range m.addrs {
		if b := withIP(a, seen); a.IsBlank() && b != a {
			addrs := slices.Clone(m.addrs) // who sends them has the old ones
			addrs[i] = b
			m.setAddrs(addrs)
		}
	}
}

// withIP is a with the IP of b if that is of the same family.
func withIP(a, b wire.Addr) wire.Addr {
	if ip := b.AddrPort.Addr(); !b.IsBlank() && ip.Is4() == a.AddrPort.Addr().Is4() {
		a.AddrPort = netip.AddrPortFrom(ip, a.AddrPort.Port())
	}
	return a
}

// Connect returns the connection to a peer: the one that exists for that
// address, or a new one, which begins to dial. The address must be the peer's
// exact one, nonce included; the type must be right, too: with a daemon of
// another type at that address the error wraps ErrWrongPeer, while a client that
// says it has that address is none to be found by it. Messages may be sent at
// once: they wait until the session is ready.
func (m *Messenger) Connect(to wire.Addr, peer wire.EntityType, opts ...ConnectOption) (*Conn, error) {
	o := connectOptions{}
	for _, f := range opts {
		f(&o)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, ErrShutdown
	}
	if !m.started {
		return nil, fmt.Errorf("%w: Connect before Start", ErrConfig)
	}
	if to.Type != wire.AddrMsgr2 || to.IsBlank() || to.AddrPort.Port() == 0 {
		return nil, fmt.Errorf("%w: cannot connect to %v: want v2:IP:PORT/NONCE", ErrConfig, to)
	}
	if m.addrs.Contains(to) {
		return m.loopback(), nil
	}
	if c := m.conns[to]; c != nil && !o.anonymous {
		switch c.peerType {
		case peer:
			return c, nil
		case wire.Client:
			// Nobody checks the address that a client says it has: it gives way.
		default:
			return nil, fmt.Errorf("%w: %v is connected as %v, not %v", ErrWrongPeer, to, c.peerType, peer)
		}
	}
	policy := m.policyFor(peer)
	if o.policy != nil {
		policy = *o.policy
	}
	if !policy.Lossy && m.handing >= handingFrozen {
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
	c := m.newConn(core, policy)
	c.place = Placement{Core: core.ID(), Intended: core.ID(), By: by}
	c.target, c.peerType, c.peerAddrs = to, peer, wire.AddrVec{to}
	c.anonymous, c.once, c.userKnows = o.anonymous, o.once, true
	// The sharded rule: made with the object, whatever the policy.
	c.clientCookie = m.random64()
	if !c.anonymous {
		m.conns[to] = c
	}
	c.connect(evConnect)
	return c, nil
}

// ConnectOption changes one Connect.
type ConnectOption func(*connectOptions)

type connectOptions struct {
	anonymous, once, hasCore bool
	core                     int
	with                     *Conn
	policy                   *Policy
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

// OnCore has core i own the connection.
func OnCore(i int) ConnectOption {
	return func(o *connectOptions) { o.core, o.hasCore = i, true }
}

// Lookup returns the connection of a peer's address, nil if there is none.
func (m *Messenger) Lookup(a wire.Addr) *Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conns[a]
}

// Conns returns all connections that are not closed, oldest first.
func (m *Messenger) Conns() []*Conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sorted()
}

// sorted are all connections by age, so that what is done to all of them
// happens in the same order in every run. The lock is held.
func (m *Messenger) sorted() []*Conn {
	return slices.SortedFunc(maps.Keys(m.all), func(a, b *Conn) int { return cmp.Compare(a.id, b.id) })
}

// Shutdown ends the messenger: no connection is accepted any more, all are
// closed without events, the cores stop. It waits for what is under way, but
// not beyond ctx: then it returns its error, and the rest ends by itself.
// After it has returned nil no dispatcher is called.
func (m *Messenger) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	first := !m.down
	m.down = true
	m.ended.forget()
	listeners := m.listeners
	m.listeners = nil
	m.steer.close()
	for _, c := range m.sorted() {
		c.close(false, ErrShutdown)
	}
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, l := range listeners {
			_ = l.Close() // fails only if the core is gone, and the listener with it
		}
		m.cancel(ErrShutdown)
		m.work.close()
		if first {
			m.plane.Close()
			close(m.stopNotes)
		}
		<-m.notesDone
		m.queues.close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("control: shutdown: %w", context.Cause(ctx))
	}
}
