package nodetest

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Timers of a Node whose configuration does not set them. A handshake has more time
// than a test, so that none fails because the machine is busy.
const (
	NodeHandshakeTimeout = 5 * time.Minute
	NodeInitialBackoff   = 20 * time.Millisecond
	NodeMaxBackoff       = 200 * time.Millisecond
)

// nodeStall is the time after which a core of a Node that stands still counts as stalled. A
// busy machine is no stall.
const nodeStall = time.Minute

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
// end, if a break was never reached, if the counters moved behind the last
// Await, if a connection was told things out of order, if a state transition
// was illegal, or if a throttle holds anything.
func Start(t testing.TB, cfg NodeConfig) *Node {
	t.Helper()
	n := &Node{Probe: NewProbe(), Inbox: NewInbox(), t: t}
	n.Probe.CountUntil(t.Context())
	if cfg.Name.Type == 0 {
		cfg.Name = wire.EntityName{Type: wire.OSD, ID: "0"}
	}
	for _, d := range []struct {
		at *time.Duration
		v  time.Duration
	}{{&cfg.Timeouts.Handshake, NodeHandshakeTimeout}, {&cfg.Timeouts.InitialBackoff, NodeInitialBackoff}, {&cfg.Timeouts.MaxBackoff, NodeMaxBackoff}} {
		if *d.at == 0 {
			*d.at = d.v
		}
	}
	if cfg.Plane.Cores == 0 {
		cfg.Plane.Cores = 1
	}
	if cfg.Plane.StallAfter == 0 {
		cfg.Plane.StallAfter = nodeStall
	}
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
	chain := append([]*control.Dispatcher{n.Probe.Dispatcher(), n.Inbox.recorder()}, cfg.Chain...)
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
	if err := n.Probe.Check(); err != nil {
		n.t.Errorf("%s: %v", n.Name(), err)
	}
	if err := n.Inbox.Check(); err != nil {
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
		n.t.Logf("%s:%s\n%s", n.Name(), list(n.Probe.Objects()), n.Probe.Trace())
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

// Await is Probe.Await, and its failure ends the test.
func (n *Node) Await(ctx context.Context, lines ...string) {
	n.t.Helper()
	if err := n.Probe.Await(ctx, lines...); err != nil {
		n.t.Fatalf("%s: %v", n.Name(), err)
	}
}

// Hit waits for a break, and ends the test if it is not reached.
func (n *Node) Hit(ctx context.Context, b *Break) {
	n.t.Helper()
	if err := b.Wait(ctx); err != nil {
		n.t.Fatalf("%s: %v\n%s", n.Name(), err, n.Probe.Trace())
	}
}
