package sessions

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/binding"
	"github.com/ringmsgr/ringmsgr/control/internal/door"
	"github.com/ringmsgr/ringmsgr/control/internal/gate"
	"github.com/ringmsgr/ringmsgr/control/internal/handover"
	"github.com/ringmsgr/ringmsgr/control/internal/placement"
	"github.com/ringmsgr/ringmsgr/control/internal/resize"
	"github.com/ringmsgr/ringmsgr/control/internal/session"
	"github.com/ringmsgr/ringmsgr/control/internal/stats"
	"github.com/ringmsgr/ringmsgr/control/internal/steering"
	"github.com/ringmsgr/ringmsgr/control/internal/steplock"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// Manager has the sessions of one messenger: its connections, its listeners, its cores and
// its identity. Any goroutine may call its methods, but for a core's, unless they say
// otherwise.
type Manager struct {
	cfg         Config
	owner       Owner
	plane       *loop.Plane
	compression *compression
	sockets     atomic.Uint64 // numbers sockets, also for the probe
	keyLog      func(authDone, secret []byte)
	arriving    atomic.Int64 // accepted sockets that are not counted as half open yet
	auth        atomic.Pointer[authPair]

	notifications notificationQueue
	work          gate.Gate            // handshakes
	turns         placement.Turns      // of cores
	door          *door.Door           // bounds the half-open connections
	dials         dials                // of ours, by the address that is dialled
	silent        atomic.Int64         // number of connections that dial without an answer
	lines         *loop.RationedLogger // for events that peers cause
	random        randomSource
	binder        *binding.Binder
	listeners     binding.Listeners
	steering      *steering.Steerer           // of the listeners
	hints         *steering.Hints             // of peers
	resizing      *resize.Resizer[*loop.Core] // its Lock is held while cores or listeners come and go
	ctx           context.Context             // ends with Close
	cancel        context.CancelCauseFunc
	marked        markedList // connections that were marked down, and are not closed yet

	// mu guards the fields below, and the sessions of all connections (lock, unlock).
	mu      steplock.Lock
	started bool
	down    bool // Close was called
	identity
	local      *Conn // to ourselves; nil: none
	number     int64 // gid: configured, or given by a monitor
	globalSeq  session.GlobalSeq
	globalSeq1 session.GlobalSeq // of the attempts of msgr1, which have 32 bits
	asker      asker             // of the step under way
	policies   policySet
	handing    handover.State
	names      names     // which connections go by which address
	all        list.List // of *Conn, in their order: not closed yet, anonymous ones too
	lingering  lingering
	standbys   standbys
	halfOpen   int
	ended      endedSessions
	counters   stats.Counters
	strangers  strangers
}

// New makes a Manager and starts its cores. Close ends it.
func New(cfg Config, owner Owner) (*Manager, error) {
	m := &Manager{
		cfg:           cfg,
		owner:         owner,
		notifications: notificationQueue{more: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})},
		number:        cfg.Number,
		policies:      newPolicySet(cfg.Policies, cfg.Default),
		names:         names{disproved: make(map[wire.Addr]struct{})},
		lingering:     make(lingering),
		strangers:     make(strangers),
		door:          door.New(cfg.Door),
	}
	m.random.from, m.random.check = cfg.Rand, &m.mu.Check
	m.cfg.Logger, m.cfg.Probe = m.mu.Check.Logger(cfg.Logger), m.mu.Check.Probe(cfg.Probe)
	m.keyLog = keyLogger(cfg.KeyLog, m.cfg.Logger)
	m.lines = loop.NewRationedLogger(m.cfg.Logger, cfg.Clock.Now)
	m.auth.Store(&authPair{cfg.AuthClient, cfg.AuthServer})
	m.binder, m.steering = m.newBinder(), m.newSteerer()
	m.hints = steering.NewHints(steering.HintsConfig{Follow: cfg.Steering.Hints(), Ports: cfg.Steering.HintPorts, Now: cfg.Clock.Now, Lines: m.lines})
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
	var err error
	if m.compression, err = cfg.Compression.start(); err != nil {
		return nil, err
	}
	cfg.Plane.Failed = m.failedFirst(cfg.Plane.Failed)
	if m.plane, err = loop.New(cfg.Plane); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	m.mu.Check.Watch(m.plane)
	go m.readNotifications()
	return m, nil
}

// Start lets connections be made and accepted. Until then accepted ones are refused.
func (m *Manager) Start() error {
	m.lock()
	defer m.unlock()
	if m.down {
		return ErrShutdown
	}
	m.started = true
	return nil
}

// Close ends the Manager: no connection is accepted any more, all are closed without
// events. The cores stop once wait is called, which returns when no goroutine of the Manager
// runs any more. Each Close has its own wait.
func (m *Manager) Close() (wait func()) {
	m.lock()
	defer m.unlock()
	first := !m.down
	m.down = true
	listeners, taken := m.listeners.Take()
	for _, c := range m.sortedLocked() {
		c.user.Cease() // its core may end, and its socket with it, before its handler is closed
		c.s.closeLocked(false, ErrShutdown)
	}
	m.lingering.endAllLocked(nil, false)
	return func() {
		m.steering.Close(taken)
		binding.Close(listeners)
		m.cancel(ErrShutdown)
		m.door.Close()
		m.work.Close()
		m.mu.Outboxes.Close()
		if first {
			_ = m.plane.Close() // this is no core
			close(m.notifications.stop)
		}
		<-m.notifications.done
	}
}

// Down says whether Close was called.
func (m *Manager) Down() bool {
	m.lock()
	defer m.unlock()
	return m.down
}

// lock takes the lock, and closes connections that were marked down before others see them
// under the lock. No core may call it.
func (m *Manager) lock() {
	m.mu.Lock()
	m.closeMarkedLocked()
}

// lockAnywhere is lock for the one call that a dispatcher may make on a core: Connect, if it
// has to make a connection. The core may only wait for a change of memory.
func (m *Manager) lockAnywhere() {
	m.mu.LockAnywhere()
	m.closeMarkedLocked()
}

// unlock frees the lock, and then carries out the actions that were decided under it.
func (m *Manager) unlock() { m.mu.Unlock() }

// closeMarkedLocked closes the connections that were marked down.
func (m *Manager) closeMarkedLocked() {
	for _, c := range m.marked.take() {
		c.s.closeLocked(false, ErrMarkedDown)
	}
}

// Check checks, in builds with the tag "invariants", who holds the lock. Its EnterCore and LeaveCore
// enclose each call of the embedder's code on a core.
func (m *Manager) Check() *steplock.Check { return &m.mu.Check }

// LocksTaken is the number of times that the lock was taken, with this one, in builds that check it; else 0.
func (m *Manager) LocksTaken() uint64 {
	m.lock()
	defer m.unlock()
	return m.mu.Check.TakenLocked()
}

// Plane has the cores. To add and remove them is the Manager's.
func (m *Manager) Plane() *loop.Plane { return m.plane }

// Random is a random number other than 0.
func (m *Manager) Random() uint64 { return m.random.next() }

// Addrs are our addresses, as peers get them. Any goroutine may call it, a core's too.
func (m *Manager) Addrs() wire.AddrVec {
	if addrs := m.shown.Load(); addrs != nil {
		return slices.Clone(*addrs)
	}
	return nil
}

// SetPolicy changes the policy for new connections with peers of type t; wire.Any stands for the
// types that have none of their own.
func (m *Manager) SetPolicy(t wire.EntityType, p Policy) {
	m.lock()
	defer m.unlock()
	m.policies.set(t, p)
}

// authPair authenticates the connections that we make and accept.
type authPair struct {
	client auth.Client
	server auth.Server
}

// SetAuth replaces the authentication of handshakes that begin from now on. nil leaves that
// side as it is.
func (m *Manager) SetAuth(client auth.Client, server auth.Server) {
	m.lock()
	defer m.unlock()
	now := *m.auth.Load()
	if client != nil {
		now.client = client
	}
	if server != nil {
		now.server = server
	}
	m.auth.Store(&now)
}

// Lookup returns the connection of a peer's address, nil if there is none. It takes
// no lock. Any goroutine may call it, a core's too.
func (m *Manager) Lookup(a wire.Addr) *Conn { return m.names.found(a) }

// Conns returns all connections that are not closed, oldest first.
func (m *Manager) Conns() []*Conn {
	m.lock()
	defer m.unlock()
	return m.sortedLocked()
}

// Pin changes the pins of all listening addresses. Core is the one that change names, nil if
// it names none.
func (m *Manager) Pin(core *int, change func(*bpf.Steering) error) error {
	return m.steering.Pin(func() error {
		if core == nil {
			return nil
		}
		return m.placeable(*core)
	}, change)
}

// Stats fills in the Manager's part of st. It waits for the next turn of each core. After
// Close it returns the last counts of the cores, with loop.ErrStopped.
func (m *Manager) Stats(st *stats.Stats) (err error) {
	info := m.plane.Info()
	m.lock()
	arriving := m.arriving.Load() // accepted, and not counted yet
	st.Name, st.Addrs, st.Backend, st.Fallback = m.cfg.Name.String(), m.addrs.String(), string(info.Backend), info.Fallback
	st.Open, st.Standby, st.HalfOpen = m.all.Len(), m.standbys.n, m.halfOpen+int(arriving)
	st.Counters = m.counters
	st.Counters.Accepted += uint64(arriving)
	m.countDoor(&st.Counters)
	m.unlock()
	st.Counters.Hints = m.hints.Counts()
	if st.Steering, err = m.steering.Stats(); err != nil {
		return err
	}
	var stopped error
	throttled := false // some connection has been
	for _, c := range m.plane.All() {
		cs, err := dataplane.StatsOf(c)
		if errors.Is(err, loop.ErrStopped) && m.ctx.Err() == nil {
			continue // removed meanwhile, or about to be
		}
		if err != nil && !errors.Is(err, loop.ErrStopped) {
			return err
		}
		st.Cores, stopped = append(st.Cores, cs), err
		throttled = throttled || cs.Paused > 0
	}
	if now := m.cfg.Clock.Now(); throttled || m.silent.Load() > 0 { // else there is no need to look at all connections
		m.lock()
		defer m.unlock()
		for _, c := range m.sortedLocked() {
			if _, yes := c.throttles.Stopped(); yes {
				_, long := c.Unreleased()
				st.ThrottledConns++
				st.ThrottledFor = max(st.ThrottledFor, long)
			}
			if since := c.silentSince(); !since.IsZero() {
				st.Unanswered++
				st.UnansweredSeconds = max(st.UnansweredSeconds, int(now.Sub(since)/time.Second))
			}
		}
	}
	return stopped
}

// withTimeout is context.WithTimeout by the messenger's clock.
func (m *Manager) withTimeout(ctx context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := m.cfg.Clock.AfterFunc(d, func() { cancel(ErrHandshakeTimeout) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// markedList are connections that their user has marked down. MarkDown may run on
// a core, which must not wait for the lock: it only adds the connection here, and
// the next goroutine that takes the lock closes it.
type markedList struct{ head atomic.Pointer[Conn] }

// push adds a connection, at most once.
func (l *markedList) push(c *Conn) {
	for {
		old := l.head.Load()
		c.nextMarked = old
		if l.head.CompareAndSwap(old, c) {
			return
		}
	}
}

func (l *markedList) empty() bool { return l.head.Load() == nil }

// take empties the list, oldest first.
func (l *markedList) take() []*Conn {
	if l.empty() {
		return nil
	}
	var list []*Conn
	for c := l.head.Swap(nil); c != nil; c = c.nextMarked {
		list = append(list, c)
	}
	slices.Reverse(list)
	return list
}

// randomSource makes random numbers other than 0, for any goroutine, but not under
// the lock of sessions: a source may be a system call, or a user's.
type randomSource struct {
	mu     sync.Mutex
	from   io.Reader // guarded by mu
	failed uint64    // guarded by mu
	buf    [8]byte   // guarded by mu
	check  *steplock.Check
}

func (r *randomSource) next() uint64 {
	r.check.MustBeFree("the source of random numbers")
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		// The system's source does not fail; an injected one that does leaves
		// zeros, which the counter makes unique.
		if _, err := io.ReadFull(r.from, r.buf[:]); err != nil {
			r.failed++
			return r.failed
		}
		if v := binary.LittleEndian.Uint64(r.buf[:]); v != 0 {
			return v
		}
	}
}

// numbers are random numbers for one step: client is a new client cookie. They are drawn before, as the lock is
// held during a step.
type numbers struct{ client, server uint64 }

func (m *Manager) drawNumbers() numbers { return numbers{m.random.next(), m.random.next()} }

// owner is a new server cookie. For peers of package control it names the core that owns the
// socket, if they can reach it by a hint.
func (n numbers) owner(m *Manager, c *Conn) uint64 {
	h := m.steering.Hint(c.s.att.link.Core().ID())
	if !h.Known() {
		return n.server
	}
	cookie := h.Cookie(n.server)
	if cookie == 0 {
		return n.server // one of very many draws
	}
	m.hints.Count(func(n *steering.HintCounts) { n.Given++ })
	return cookie
}
