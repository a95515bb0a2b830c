package nodetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// shutdownPatience bounds the shutdown of a Node at the end of its test.
const shutdownPatience = time.Minute

// NodeConfig configures a Node.
type NodeConfig struct {
	// Config of the messenger. Without a Name it is osd.0; timers of 0 are
	// those of a Node; one core unless Plane says otherwise. Its Probe is the
	// node's.
	control.Config
	// Unbound leaves the node without an address to accept on.
	Unbound bool
	// Bind are the addresses to accept on; nil: v2:127.0.0.1:0. For port 0 of
	// 127.0.0.1 the node has a port until the end of the test (ReservePort), so
	// that its peers reach nobody else after its shutdown.
	Bind wire.AddrVec
	// Chain of dispatchers behind those of the node. They need not take
	// messages.
	Chain []*control.Dispatcher
}

// Node is a messenger under test: its Probe counts, and its Inbox keeps the received messages.
type Node struct {
	*control.Messenger
	Probe *Probe
	Inbox *Inbox
	Addr  wire.Addr // where it accepts, the first address; zero if unbound
	t     testing.TB
}

// Start makes a messenger, starts it and binds it. At
// the end of the test it is shut down, and the test fails if that does not
// end, if a break was never reached, if a connection was told things out of
// order, if a state transition was illegal, or if a throttle holds anything.
func Start(t testing.TB, cfg NodeConfig) *Node {
	t.Helper()
	n := &Node{Probe: NewProbe(), Inbox: &Inbox{changed: make(chan struct{})}, t: t}
	if cfg.Name.Type == 0 {
		cfg.Name = wire.EntityName{Type: wire.OSD, ID: "0"}
	}
	// A handshake has more time than a test, and a core that stands still is no stall at once, so
	// that nothing fails because the machine is busy.
	times := &cfg.Timeouts
	times.Handshake = cmp.Or(times.Handshake, 5*time.Minute)
	times.InitialBackoff = cmp.Or(times.InitialBackoff, 20*time.Millisecond)
	times.MaxBackoff = cmp.Or(times.MaxBackoff, 200*time.Millisecond)
	cfg.Plane.Cores, cfg.Plane.StallAfter = cmp.Or(cfg.Plane.Cores, 1), cmp.Or(cfg.Plane.StallAfter, time.Minute)
	cfg.Config.Diagnostics.Probe = n.Probe
	if cfg.Bind == nil {
		cfg.Bind = wire.AddrVec{{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}}
	}
	at := reserved(t, &cfg) // given up after the shutdown
	m, err := control.New(cfg.Config)
	if err != nil {
		t.Fatalf("nodetest: %v", err)
	}
	n.Messenger = m
	t.Cleanup(func() { n.finish(cfg.Policies, cfg.Default) })
	chain := append([]*control.Dispatcher{n.recorder()}, cfg.Chain...)
	chain = append(chain, &control.Dispatcher{Fast: func(*control.Conn, *control.Message) bool { return true }})
	if err := m.Start(chain...); err != nil {
		t.Fatalf("nodetest: %v", err)
	}
	if !cfg.Unbound {
		addrs, err := m.Bind(at...)
		if err != nil {
			t.Fatalf("nodetest: %v", err)
		}
		n.Addr = addrs.Front()
	}
	return n
}

// reserved are the addresses of a node, with ports of its own.
func reserved(t testing.TB, cfg *NodeConfig) wire.AddrVec {
	t.Helper()
	at := slices.Clone(cfg.Bind)
	for i := range at {
		if !cfg.Unbound && cfg.Binding.Ports == (bpf.PortRange{}) && at[i].AddrPort == netip.MustParseAddrPort("127.0.0.1:0") {
			at[i].AddrPort = msgrtest.ReservePort(t)
		}
	}
	return at
}

// finish is the check at the end of the test.
func (n *Node) finish(policies map[wire.EntityType]control.Policy, fallback *control.Policy) {
	n.Probe.ReleaseAll()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		n.t.Errorf("nodetest: %s: %v", n.Name(), err)
		return
	}
	if err := errors.Join(n.Probe.Check(), n.Inbox.Check()); err != nil {
		n.t.Errorf("%s: %v", n.Name(), err)
	}
	st, _ := n.Stats() // its error says that the cores are down, as they should be
	if st.Counters.IllegalTransitions != 0 {
		n.t.Errorf("nodetest: %s: %d illegal transitions", n.Name(), st.Counters.IllegalTransitions)
	}
	if st.InFlight != 0 {
		n.t.Errorf("nodetest: %s: the dispatch throttle holds %d bytes", n.Name(), st.InFlight)
	}
	if fallback != nil {
		n.checkThrottles(*fallback)
	}
	for _, p := range policies {
		n.checkThrottles(p)
	}
	if n.t.Failed() {
		n.t.Logf("%s: %+v\n%s", n.Name(), n.Inbox.Lives(), n.Probe.Trace())
	}
}

func (n *Node) checkThrottles(p control.Policy) {
	if p.Bytes != nil && p.Bytes.Used() != 0 || p.Messages != nil && p.Messages.Used() != 0 {
		n.t.Errorf("nodetest: %s: the throttles of policy %s hold something", n.Name(), p.Name)
	}
}

// Dial connects to another node.
func (n *Node) Dial(to *Node, opts ...control.ConnectOption) *control.Conn {
	n.t.Helper()
	c, err := n.Connect(to.Addr, to.Name().Type, opts...)
	if err != nil {
		n.t.Fatalf("nodetest: %v", err)
	}
	return c
}

// Hit waits for a break, and ends the test if it is not reached.
func (n *Node) Hit(ctx context.Context, b *Break) {
	n.t.Helper()
	if err := b.Wait(ctx); err != nil {
		n.t.Fatalf("%s: %v\n%s", n.Name(), err, n.Probe.Trace())
	}
}

// Received is one message of an Inbox.
type Received struct {
	Conn  *control.Conn
	TID   uint64
	Front string
}

// Inbox keeps the messages that a node received, and counts the events of each connection. All
// methods may be called by any goroutine.
type Inbox struct {
	mu      sync.Mutex
	got     []Received    // guarded by mu
	changed chan struct{} // closed and replaced with every message; guarded by mu
	lives   []*Life       // guarded by mu
	errs    []error       // guarded by mu
}

// Life counts the events by which one connection ended, or began anew.
type Life struct {
	Conn                 *control.Conn
	Resets, RemoteResets int
}

// Check returns an error if a message came before the accept or connect event
// of its connection, or anything behind its reset event. A connection to
// ourselves has no events.
func (b *Inbox) Check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.errs...)
}

// Lives are the events of each connection that had one, in the order of their first ones.
func (b *Inbox) Lives() (list []Life) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lives {
		list = append(list, *l)
	}
	return list
}

// told counts an event, or a message if count is nil.
func (b *Inbox) told(c *control.Conn, what string, count func(l *Life)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.lives, func(l *Life) bool { return l.Conn == c })
	switch {
	case i < 0 && count == nil && c.Core() != nil:
		b.errs = append(b.errs, fmt.Errorf("nodetest: connection %d: %s before its accept or connect event", c.ID(), what))
	case i >= 0 && b.lives[i].Resets > 0:
		b.errs = append(b.errs, fmt.Errorf("nodetest: connection %d: %s behind its reset event", c.ID(), what))
	}
	if count == nil {
		return
	}
	if i < 0 {
		i, b.lives = len(b.lives), append(b.lives, &Life{Conn: c})
	}
	count(b.lives[i])
}

// recorder is a dispatcher that notes every message and event, and takes none.
func (n *Node) recorder() *control.Dispatcher {
	b := n.Inbox
	event := func(c *control.Conn, what string, count func(l *Life)) {
		n.Probe.note("conn %d event %s", c.ID(), what)
		b.told(c, what+" event", count)
	}
	return &control.Dispatcher{
		Accept:      func(c *control.Conn, _ int, _ bool) { event(c, "accept", func(*Life) {}) },
		Connect:     func(c *control.Conn, _ int) { event(c, "connect", func(*Life) {}) },
		Reset:       func(c *control.Conn, _ bool) { event(c, "reset", func(l *Life) { l.Resets++ }) },
		RemoteReset: func(c *control.Conn) { event(c, "remote reset", func(l *Life) { l.RemoteResets++ }) },
		Fast: func(c *control.Conn, m *control.Message) bool {
			b.told(c, "message", nil)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.got = append(b.got, Received{c, m.TID, string(m.Front)})
			close(b.changed)
			b.changed = make(chan struct{})
			return false
		},
	}
}

// Messages are those received so far, in order.
func (b *Inbox) Messages() []Received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// TIDs are the transaction ids of the messages received so far, in order.
func (b *Inbox) TIDs() []uint64 {
	tids := []uint64{}
	for _, m := range b.Messages() {
		tids = append(tids, m.TID)
	}
	return tids
}

// Await waits until the transaction ids received are exactly these.
func (b *Inbox) Await(ctx context.Context, tids ...uint64) error {
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		got := b.TIDs()
		if slices.Equal(got, tids) || len(got) == 0 && len(tids) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("nodetest: received %v, want %v: %w", got, tids, context.Cause(ctx))
		}
	}
}
