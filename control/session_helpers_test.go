package control_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
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
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// sessionTime bounds one session test, on a machine that has much else to do.
const sessionTime = 90 * time.Second

// must ends the test by an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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

// everyVariant runs a test over all variants, at the same time.
func everyVariant(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	msgrtest.CheckLeaks(t)
	spread(t, len(variants), len(variants), func(i int) string { return variants[i].String() }, func(t *testing.T, i int) {
		run(t, deadline(t), variants[i])
	})
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
func nodeOf(t *testing.T, v variant, name, policy string, nonce uint32, change ...func(*msgrtest.NodeConfig)) *msgrtest.Node {
	t.Helper()
	p := shortPolicies[policy]()
	n, err := wire.ParseEntityName(name)
	must(t, err)
	cfg := msgrtest.NodeConfig{
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
	return msgrtest.Start(t, cfg)
}

// numberOf is that of an entity: an OSD is its number.
func numberOf(n wire.EntityName, nonce uint32) int64 {
	if id, err := strconv.ParseInt(n.ID, 10, 64); err == nil && n.Type == wire.OSD {
		return id
	}
	return int64(nonce)
}

// withChain adds dispatchers to a node.
func withChain(d ...*control.Dispatcher) func(*msgrtest.NodeConfig) {
	return func(c *msgrtest.NodeConfig) { c.Chain = append(c.Chain, d...) }
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
func receives(t *testing.T, ctx context.Context, n *msgrtest.Node, tids ...uint64) {
	t.Helper()
	if err := n.Inbox.Await(ctx, tids...); err != nil {
		t.Fatalf("%s: %v\n%s", n.Name(), err, n.Probe.Trace())
	}
}

// first is the first connection of a node that has one.
func first(t *testing.T, ctx context.Context, n *msgrtest.Node) *control.Conn {
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
func points(names string) []msgrtest.Point {
	var out []msgrtest.Point
	for _, n := range strings.Fields(names) {
		out = append(out, msgrtest.MustPoint(n))
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

// variant is what every session test runs over: the protocol above must not
// depend on it.
type variant struct {
	backend    uring.Backend
	rev0       bool
	secure     bool
	compressed bool
	msgr1      bool // without any of the others
}

func (v variant) String() string {
	if v.msgr1 {
		return string(v.backend) + ",msgr1"
	}
	s := string(v.backend) + ",rev1"
	if v.rev0 {
		s = string(v.backend) + ",rev0"
	}
	if v.secure {
		s += ",secure"
	}
	if v.compressed {
		s += ",compressed"
	}
	return s
}

// engines are those that tests run over: the one that this build prefers, and epoll in
// the default build alone. Without rings epoll is what the build prefers, so that it would
// be the same twice; beside giouring it is that of the default build.
var engines = enginesOf(uring.Flavour)

func enginesOf(flavour uring.Backend) []uring.Backend {
	if flavour == uring.IOUring {
		return []uring.Backend{uring.Auto, uring.Epoll}
	}
	return []uring.Backend{uring.Auto}
}

// variants are those in which most tests run: each engine with both
// revisions, neither encrypted nor compressed.
var variants = allVariants[:2*len(engines)]

// newest are those of the variants with the newer revision.
var newest = variants[:len(engines)]

// allVariants are all modes with each engine.
var allVariants = makeVariants()

// msgr1Variants are each engine with the older protocol.
var msgr1Variants = makeMsgr1Variants()

func makeMsgr1Variants() []variant {
	var out []variant
	for _, b := range engines {
		out = append(out, variant{backend: b, msgr1: true})
	}
	return out
}

func makeVariants() []variant {
	var out []variant
	bits := []bool{false, true}
	for _, compressed := range bits {
		for _, secure := range bits {
			for _, rev0 := range bits {
				for _, b := range engines {
					out = append(out, variant{backend: b, rev0: rev0, secure: secure, compressed: compressed})
				}
			}
		}
	}
	return out
}

// modesFor are the plain variants and one of the others, which depends on the
// name of the test and the seed of the sample; with RINGMSGR_LONG all.
func modesFor(t *testing.T) []variant {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return allVariants
	}
	return append(slices.Clone(variants), oneOf(t, allVariants[len(variants):]))
}

// oneOf is an element of list that depends on the name of the test and the seed of the
// sample.
func oneOf(t *testing.T, list []variant) variant {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name())) // it does not fail
	return list[(uint64(h.Sum32())+seedOfSample(t))%uint64(len(list))]
}

// msgr1For is one of the variants with the older protocol; with RINGMSGR_LONG all.
func msgr1For(t *testing.T) []variant {
	if os.Getenv("RINGMSGR_LONG") != "" {
		return msgr1Variants
	}
	return []variant{oneOf(t, msgr1Variants)}
}

// everyProtocol is everyVariant, and the older protocol as well.
func everyProtocol(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, append(slices.Clone(variants), msgr1For(t)...), run)
}

// everyModeAndProtocol is everyMode, and the older protocol as well.
func everyModeAndProtocol(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, append(modesFor(t), msgr1For(t)...), run)
}

func overVariants(t *testing.T, list []variant, run func(t *testing.T, ctx context.Context, v variant)) {
	msgrtest.CheckLeaks(t)
	spread(t, len(list), len(list), func(i int) string { return list[i].String() }, func(t *testing.T, i int) {
		run(t, deadline(t), list[i])
	})
}

// everyMode is everyVariant, encrypted and compressed as well. Both ends have
// to be nodes.
func everyMode(t *testing.T, run func(t *testing.T, ctx context.Context, v variant)) {
	overVariants(t, modesFor(t), run)
}

// configure makes a messenger of this variant.
func (v variant) configure(cfg *control.Config) {
	cfg.Protocol.Rev0 = v.rev0
	cfg.Plane.Driver.Backend = v.backend
	if v.secure {
		cfg.Auth.Modes = []auth.Mode{auth.Secure}
		cfg.Auth.Client, cfg.Auth.Server = chatty{cfg.Name, cfg.Auth.Modes}, &chattyServer{modes: cfg.Auth.Modes}
	}
	if v.compressed {
		cfg.Protocol.Compression = control.Compression{
			Methods: methods(wire.CompressionSnappy), Min: -1, Peers: []wire.EntityType{wire.OSD, wire.Client}, Secure: v.secure,
		}
	}
}

// check says whether a connection is what the variant asks for.
func (v variant) check(t *testing.T, c *control.Conn) {
	t.Helper()
	rev, mode, method := frame.Rev1, auth.CRC, wire.CompressionNone
	if v.rev0 {
		rev = frame.Rev0
	}
	if v.secure {
		mode = auth.Secure
	}
	if v.compressed {
		method = wire.CompressionSnappy
	}
	protocol := rev.String()
	if v.msgr1 {
		protocol = control.Msgr1
	}
	if i := c.Info(); i.Protocol != protocol || i.Mode != mode || i.Compression != method.String() {
		t.Errorf("the connection has %s, %v, %s, want %v, %v, %v", i.Protocol, i.Mode, i.Compression, protocol, mode, method)
	}
}

// handshakePoints are the points that a side passes in this variant.
func (v variant) handshakePoints(r msgrtest.Role) []msgrtest.Point {
	if v.msgr1 {
		return msgrtest.HandshakePoints1(r)
	}
	list := msgrtest.HandshakePoints(r)
	dir := []func(frame.Tag) msgrtest.Point{msgrtest.Write, msgrtest.Read}
	if r == msgrtest.Acceptor {
		slices.Reverse(dir)
	}
	ours, theirs := dir[0], dir[1] // the connector's frames, and the answers
	insert := func(before msgrtest.Point, p ...msgrtest.Point) {
		list = slices.Insert(list, slices.Index(list, before), p...)
	}
	if v.secure {
		insert(theirs(frame.TagAuthDone), theirs(frame.TagAuthBadMethod), ours(frame.TagAuthRequest),
			theirs(frame.TagAuthReplyMore), ours(frame.TagAuthRequestMore))
	}
	if v.compressed {
		insert(ours(frame.TagClientIdent), ours(frame.TagCompressionRequest), theirs(frame.TagCompressionDone))
	}
	return list
}

// breakPoints are handshakePoints, each once.
func (v variant) breakPoints(r msgrtest.Role) []msgrtest.Point {
	var out []msgrtest.Point
	for _, p := range v.handshakePoints(r) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// A test of every case that is too long to run each time runs a part of them,
// and another part the next time: the seed of the sample says which. It is the
// time, or RINGMSGR_SAMPLE; as many seeds in a row as the stride has run all.

// sampleSeed is the seed of this process.
var sampleSeed = uint64(time.Now().Unix())

func seedOfSample(t testing.TB) uint64 {
	t.Helper()
	s := os.Getenv("RINGMSGR_SAMPLE")
	if s == "" {
		return sampleSeed
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("RINGMSGR_SAMPLE: %v", err)
	}
	return seed
}

// sampleOf keeps one of stride, all with RINGMSGR_LONG. A stride that has no
// factor in common with the sizes of a product meets every part of it.
func sampleOf[T any](t testing.TB, all []T, stride int) []T {
	t.Helper()
	return sampleAt(t, all, stride, seedOfSample(t))
}

// sampleAt is sampleOf with a seed of its own, for a sample of a sample.
func sampleAt[T any](t testing.TB, all []T, stride int, seed uint64) []T {
	t.Helper()
	if os.Getenv("RINGMSGR_LONG") != "" {
		t.Logf("RINGMSGR_SAMPLE=%d: all %d cases", seedOfSample(t), len(all))
		return all
	}
	var out []T
	first := int(seed % uint64(min(stride, max(len(all), 1))))
	for i := first; i < len(all); i += stride {
		out = append(out, all[i])
	}
	t.Logf("RINGMSGR_SAMPLE=%d: %d of %d cases, one of %d from number %d on", seedOfSample(t), len(out), len(all), stride, first)
	return out
}

func TestSuccessiveSamplesCoverEverything(t *testing.T) {
	t.Setenv("RINGMSGR_LONG", "")
	for _, size := range []int{1, 7, 28, 29, 1000} {
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		const stride = 29
		met := make(map[int]int)
		for seed := uint64(1_000_000); seed < 1_000_000+stride; seed++ {
			t.Setenv("RINGMSGR_SAMPLE", strconv.FormatUint(seed, 10))
			some := sampleOf(t, all, stride)
			if len(some) < size/stride || len(some) == 0 {
				t.Errorf("seed %d has %d of %d cases", seed, len(some), size)
			}
			for _, i := range some {
				met[i]++
			}
		}
		if len(met) != size {
			t.Errorf("%d of %d cases in %d runs", len(met), size, stride)
		}
	}
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

// osdOf is the configuration of osd.1 with one core.
func osdOf(v variant) control.Config {
	cfg := control.Config{Name: osd("1"), Plane: loop.Config{Cores: 1}}
	v.configure(&cfg)
	return cfg
}

func endWithTest(t testing.TB, m *control.Messenger) { t.Cleanup(func() { end(t, m) }) }

// end shuts a messenger down.
func end(t testing.TB, m *control.Messenger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Shutdown(ctx); err != nil {
		t.Error(err)
	}
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
