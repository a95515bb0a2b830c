package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// sessionTime bounds one session test, on a machine that has much else to do.
const sessionTime = 90 * time.Second

// spread runs cases at the same time, at most width of them: they spend their
// time waiting for timers and sockets, so that more of them than CPUs pay.
func spread(t *testing.T, width, n int, name func(i int) string, run func(t *testing.T, i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(width, n) {
		wg.Go(func() {
			for i := range next {
				t.Run(name(i), func(t *testing.T) { run(t, i) })
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// everyVariant runs a test over all variants, at the same time.
func everyVariant(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	nodetest.CheckLeaks(t)
	spread(t, len(variants), len(variants), func(i int) string { return variants[i].String() }, func(t *testing.T, i int) {
		run(t, deadline(t), variants[i])
	})
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), sessionTime)
	t.Cleanup(cancel)
	return ctx
}

// policies by the short names of the tables below.
var shortPolicies = map[string]func() control.Policy{
	"LC": control.LossyClient, "LLC": control.LosslessClient, "LP": control.LosslessPeer, "LPR": control.LosslessPeerReuse,
	"SFS": control.StatefulServer, "SLS": control.StatelessServer, "SLR": control.StatelessRegisteredServer,
}

// nodeOf is a node with one policy for everybody. Clients (LC, LLC) are not
// bound. The nonce orders addresses: it is what is compared first.
func nodeOf(t *testing.T, v variant, name, policy string, nonce uint32, change ...func(*nodetest.NodeConfig)) *nodetest.Node {
	t.Helper()
	p := shortPolicies[policy]()
	n, err := wire.ParseEntityName(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := nodetest.NodeConfig{
		Config: control.Config{
			Name: n, Number: numberOf(n, nonce), Nonce: &nonce, Default: &p, Plane: loop.Config{Cores: 1},
		},
		Unbound: policy == "LC" || policy == "LLC",
	}
	v.configure(&cfg.Config)
	if v.msgr1 {
		cfg.Bind = wire.AddrVec{{Type: wire.AddrLegacy, AddrPort: loopback(0)}}
	}
	for _, f := range change {
		f(&cfg)
	}
	return nodetest.Start(t, cfg)
}

// numberOf is that of an entity: an OSD is its number.
func numberOf(n wire.EntityName, nonce uint32) int64 {
	if id, err := strconv.ParseInt(n.ID, 10, 64); err == nil && n.Type == wire.OSD {
		return id
	}
	return int64(nonce)
}

// withChain adds dispatchers to a node.
func withChain(d ...*control.Dispatcher) func(*nodetest.NodeConfig) {
	return func(c *nodetest.NodeConfig) { c.Chain = append(c.Chain, d...) }
}

// echoer sends every message back, with 1000 more in its transaction id. It
// does not answer answers.
func echoer() *control.Dispatcher {
	return &control.Dispatcher{Fast: func(c *control.Conn, m *control.Message) bool {
		if m.TID < 1000 {
			reply := control.NewMessage(m.Type, nil, nil)
			reply.TID = m.TID + 1000
			if c.Send(reply) != nil {
				reply.Release()
			}
		}
		return true
	}}
}

// greeter sends a message as soon as a connection is accepted for the first
// time.
func greeter(tid uint64) *control.Dispatcher {
	var once sync.Once
	return &control.Dispatcher{Accept: func(c *control.Conn, _ int, _ bool) {
		once.Do(func() {
			m := control.NewMessage(1, nil, nil)
			m.TID = tid
			if c.Send(m) != nil {
				m.Release()
			}
		})
	}}
}

// send sends a message that only has a number.
func send(t *testing.T, c *control.Conn, tid uint64) {
	t.Helper()
	m := control.NewMessage(1, nil, nil)
	m.TID = tid
	if err := c.Send(m); err != nil {
		t.Fatalf("send %d: %v", tid, err)
	}
}

// receives waits until the node has received exactly these.
func receives(t *testing.T, ctx context.Context, n *nodetest.Node, tids ...uint64) {
	t.Helper()
	if err := n.Inbox.Await(ctx, tids...); err != nil {
		t.Fatalf("%s: %v\n%s", n.Name(), err, n.Probe.Trace())
	}
}

// first is the first connection of a node that has one.
func first(t *testing.T, ctx context.Context, n *nodetest.Node) *control.Conn {
	t.Helper()
	var c *control.Conn
	err := msgrtest.Until(ctx, func() bool {
		for _, o := range n.Probe.Objects() {
			if o.Conn != nil {
				c = o.Conn
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatalf("%s: no connection:\n%s", n.Name(), n.Probe.Trace())
	}
	return c
}

// loopback is a port of 127.0.0.1.
func loopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// points parses a list of break points.
func points(names string) []nodetest.Point {
	var out []nodetest.Point
	for _, n := range strings.Fields(names) {
		out = append(out, nodetest.MustPoint(n))
	}
	return out
}

// title names a subtest.
func title(parts ...any) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintln(parts...)), " ", "/")
}

// eventually waits for a condition.
func eventually(t *testing.T, ctx context.Context, what string, ok func() bool) {
	t.Helper()
	if err := msgrtest.Until(ctx, ok); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// openIdle opens n connections that do nothing, and waits until both ends are ready.
func openIdle(t *testing.T, ctx context.Context, server, client *control.Messenger, addr wire.Addr, n int) {
	t.Helper()
	var list []*control.Conn
	for range n {
		c, err := client.Connect(addr, wire.OSD, control.Anonymous())
		must(t, err)
		list = append(list, c)
	}
	for _, c := range list {
		must(t, c.WaitReady(ctx))
	}
	eventually(t, ctx, "the handshakes to end", func() bool {
		st, err := server.Stats()
		return err == nil && st.HalfOpen == 0
	})
}

func echo(c *control.Conn, m *control.Message) bool {
	m.Retain()
	if err := c.Send(m); err != nil {
		m.Release()
	}
	return true
}

func newMessenger(t testing.TB, name string, cores int, backend uring.Backend) *control.Messenger {
	t.Helper()
	n, err := wire.ParseEntityName(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := control.Config{Name: n, Plane: loop.Config{Cores: cores, Driver: uring.Config{Backend: backend}}}
	m, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return m
}
