package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
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
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// sessionTime bounds one session test, on a machine that has much else to do.
const sessionTime = 90 * time.Second

// patience bounds what must happen.
const patience = time.Minute

var must = drivertest.Must

// check reports an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// wantError wants an error that wraps all of these.
func wantError(t testing.TB, what string, err error, all ...error) {
	t.Helper()
	for _, want := range all {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

func async(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}

func onlyError[T any](_ T, err error) error { return err }

// arrives is what comes on a channel. The test ends if nothing does.
func arrives[T any](t testing.TB, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: did not happen", what)
	}
	return v
}

// connect asks for a connection.
func connect(t testing.TB, m interface {
	Connect(wire.Addr, wire.EntityType, ...control.ConnectOption) (*control.Conn, error)
}, to wire.Addr, peer wire.EntityType, opts ...control.ConnectOption) *control.Conn {
	t.Helper()
	c, err := m.Connect(to, peer, opts...)
	must(t, err)
	return c
}

// bind listens, and returns the addresses with their ports and nonces.
func bind(t testing.TB, m interface {
	Bind(...wire.Addr) (wire.AddrVec, error)
}, at ...wire.Addr) wire.AddrVec {
	t.Helper()
	addrs, err := m.Bind(at...)
	must(t, err)
	return addrs
}

// logText is what was logged, by any goroutine.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logText) count(text string) int { return strings.Count(l.String(), text) }

// journal notes what is told, by any goroutine.
type journal struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// take waits until there are n lines, and begins anew.
func (j *journal) take(t *testing.T, ctx context.Context, n int) []string {
	t.Helper()
	eventually(t, ctx, fmt.Sprint(n, " lines"), func() bool { return len(j.all()) >= n })
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// check takes as many lines as it wants.
func (j *journal) check(t *testing.T, ctx context.Context, want ...string) {
	t.Helper()
	if got := j.take(t, ctx, len(want)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// everything is a logger for all levels.
func (l *logText) everything(json bool) *slog.Logger {
	opt := &slog.HandlerOptions{Level: slog.Level(-100), AddSource: true}
	if json {
		return slog.New(slog.NewJSONHandler(l, opt))
	}
	return slog.New(slog.NewTextHandler(l, opt))
}

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

// inLongForm is what a test takes if RINGMSGR_LONG asks for its full size, else usual.
func inLongForm[T any](full, usual T) T {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return full
	}
	return usual
}

func deadline(t testing.TB) context.Context {
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
	must(t, err)
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

// numbered gives a message its transaction id.
func numbered(tid uint64, m *control.Message) *control.Message {
	m.TID = tid
	return m
}

// send sends a message that only has a number.
func send(t *testing.T, c *control.Conn, tid uint64) {
	t.Helper()
	m := numbered(tid, control.NewMessage(1, nil, nil))
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

// first is the first connection that a node has.
func first(t *testing.T, ctx context.Context, n *nodetest.Node) *control.Conn {
	t.Helper()
	eventually(t, ctx, "a connection", func() bool { return len(n.Conns()) > 0 })
	return n.Conns()[0]
}

// loopback is a port of 127.0.0.1.
func loopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
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
		c := connect(t, client, addr, wire.OSD, control.Anonymous())
		list = append(list, c)
	}
	for _, c := range list {
		must(t, c.WaitReady(ctx))
	}
	eventually(t, ctx, "the handshakes to end", func() bool { return statsOf(t, server).HalfOpen == 0 })
}

func echo(c *control.Conn, m *control.Message) bool {
	m.Retain()
	if err := c.Send(m); err != nil {
		m.Release()
	}
	return true
}

// echoAll sends every message back.
func echoAll() *control.Dispatcher { return &control.Dispatcher{Fast: echo} }

// newMessenger makes a messenger that ends with the test.
func newMessenger(t testing.TB, cfg control.Config) *control.Messenger {
	t.Helper()
	m, err := control.New(cfg)
	must(t, err)
	endWithTest(t, m)
	return m
}

func startMessenger(t testing.TB, cfg control.Config, chain ...*control.Dispatcher) *control.Messenger {
	t.Helper()
	m := newMessenger(t, cfg)
	must(t, m.Start(chain...))
	return m
}

// oneCore is the configuration of a messenger with one core on an engine.
func oneCore(t testing.TB, name string, backend uring.Backend) control.Config {
	return control.Config{Name: entity(t, name), Plane: loop.Config{Cores: 1, Driver: uring.Config{Backend: backend}}}
}

// plainServer is osd.1 with one core and the default policy. Nothing observes it, so that only
// its own memory counts. Many half-open connections have all the time that a busy machine takes for them.
func plainServer(t *testing.T, v variant, change func(*control.Config), chain ...*control.Dispatcher) (*control.Messenger, wire.Addr) {
	t.Helper()
	cfg := control.Config{Name: osd("1"), Plane: loop.Config{Cores: 1}, Timeouts: control.Timeouts{Handshake: anyHandshake}}
	v.configure(&cfg)
	if change != nil {
		change(&cfg)
	}
	m := startMessenger(t, cfg, chain...)
	at := v2(loopback(0).Addr(), 0)
	if v.msgr1 {
		at = at.WithType(wire.AddrLegacy)
	}
	return m, bind(t, m, at)[0]
}

func plainClient(t *testing.T, v variant) *control.Messenger {
	t.Helper()
	cfg := oneCore(t, "client.2", v.backend)
	cfg.Timeouts.Handshake = anyHandshake
	v.configure(&cfg)
	return startMessenger(t, cfg)
}

func endWithTest(t testing.TB, m *control.Messenger) { t.Cleanup(func() { end(t, m) }) }

// end shuts a messenger down.
func end(t testing.TB, m *control.Messenger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	check(t, m.Shutdown(ctx))
}

func statsOf(t testing.TB, m interface{ Stats() (control.Stats, error) }) control.Stats {
	t.Helper()
	st, err := m.Stats()
	must(t, err)
	return st
}

func connStats(t testing.TB, c *control.Conn) control.ConnStats {
	t.Helper()
	st, err := c.Stats()
	must(t, err)
	return st
}

// testClock is the machine's time, but a test can have its timers go off early: what depends on
// a limit then needs neither a short limit, which a busy machine would miss elsewhere, nor the
// patience for a long one. With still it stands still until the test moves it.
type testClock struct {
	still bool
	hasty time.Duration // timers up to this go off at once

	mu    sync.Mutex
	ahead time.Duration   // of the machine's time, or of the begin; guarded by mu
	set   []*testTimer    // not run and not stopped; guarded by mu
	past  []time.Duration // of the timers that the test had go off, in order; guarded by mu
}

type testTimer struct {
	d    time.Duration
	at   time.Time
	f    func()
	real *time.Timer // nil: the clock stands still
}

func stillClock() *testClock { return &testClock{still: true} }

// of has a node live by this clock.
func (c *testClock) of(cfg *nodetest.NodeConfig) { cfg.Clock = c }

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *testClock) nowLocked() time.Time {
	if c.still {
		return time.Unix(1_700_000_000, 0).Add(c.ahead)
	}
	return time.Now().Add(c.ahead)
}

func (c *testClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &testTimer{d: d, at: c.nowLocked().Add(d), f: f}
	if d <= c.hasty {
		c.past = append(c.past, d)
		d = 0
	}
	if !c.still {
		t.real = time.AfterFunc(d, func() {
			if c.take(t) {
				f()
			}
		})
	}
	c.set = append(c.set, t)
	return func() bool { return c.take(t) }
}

// take says whether a timer was set, and is not any more.
func (c *testClock) take(t *testTimer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.set, t)
	if i < 0 {
		return false
	}
	if c.set = slices.Delete(c.set, i, i+1); t.real != nil {
		t.real.Stop()
	}
	return true
}

// pass puts the clock forward. One that stands still runs what is due; the timers of the
// machine's time go on as they would.
func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	c.ahead += d
	now := c.nowLocked()
	c.mu.Unlock()
	if c.still {
		c.fire(func(t *testTimer) bool { return !t.at.After(now) })
	}
}

// press has all timers of these durations go off now, and says how many there
// were.
func (c *testClock) press(which func(d time.Duration) bool) int {
	return c.fire(func(t *testTimer) bool { return which(t.d) })
}

func (c *testClock) fire(which func(t *testTimer) bool) (n int) {
	c.mu.Lock()
	now := slices.DeleteFunc(slices.Clone(c.set), func(t *testTimer) bool { return !which(t) })
	c.mu.Unlock()
	for _, t := range now {
		if c.take(t) {
			n++
			c.mu.Lock()
			c.past = append(c.past, t.d)
			c.mu.Unlock()
			t.f()
		}
	}
	return n
}

// waiting says whether a timer of these durations is set. What a test sees of a wait, as in a state or a
// count, may come before the timer, which the clock would not let go off then.
func (c *testClock) waiting(which func(d time.Duration) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.set, func(t *testTimer) bool { return which(t.d) })
}

// pressed are the durations of the timers that went off early.
func (c *testClock) pressed() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.past)
}
