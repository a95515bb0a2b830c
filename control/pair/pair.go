package pair

import (
	"context"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/simnet"
)

// latency is the default of Config.Network.Latency.
const latency = 100 * time.Microsecond

// patience is the time of the bubble for which Pair.Context lasts.
const patience = time.Hour

// Config of a Pair. The zero value will do: a server that takes no message, and a client
// of it with a lossless session.
type Config struct {
	// Server and Client configure the messengers. The defaults of names are osd.0 and client.0,
	// of policies a stateful server and a lossless client, and one core. Plane's driver and
	// clock are those of the network.
	Server, Client control.Config
	// Serve and Receive are the dispatchers of the server and of the client; nil: none.
	Serve, Receive *control.Dispatcher
	// Open takes the place of Serve for a server with files on its disk: it opens them, and
	// returns the dispatcher. It is called on the goroutine of the test for each process of the
	// server, which is Pair.Server, before that accepts.
	Open func(p *Pair) (*control.Dispatcher, error)
	// Network has the faults and the latency of the network; a latency of 0 stands for 100 us.
	Network simnet.Options
	// Seed chooses between events that are due at the same time.
	Seed uint64
}

// Pair is a server and a client, joined in memory.
type Pair struct {
	Server, Client *control.Messenger
	// Conn is the client's connection to the server. It is ready when the test begins.
	Conn *control.Conn
	// Addr is the address of the server, for further connections.
	Addr wire.Addr
	// Context ends with the test, or when the test has waited for an hour, so that it does
	// not wait for ever.
	Context context.Context

	// Network, ServerHost and ClientHost belong to the goroutine of the network: use them
	// in Do.
	Network                *simnet.Network
	ServerHost, ClientHost *simnet.Host

	t     *testing.T
	cfg   Config
	began time.Time
	timer *time.Timer   // until work is due
	woken chan struct{} // there is work
	acts  chan func()   // of Do
	stop  chan struct{}
	ended chan struct{}
	ready []*simnet.Core // of the last step; nil stands for the network

	mu    sync.Mutex
	cores []*simnet.Core // guarded by mu
}

// Test runs f in a bubble with a Pair, and then ends the messengers. The test fails if the
// connection does not come up, or if the messengers do not end. f must not call synctest.Wait:
// Settle takes its place.
func Test(t *testing.T, cfg Config, f func(t *testing.T, p *Pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		p := newPair(t, ctx, cfg)
		defer p.end()
		p.Client = p.messenger(cfg.Client, p.ClientHost, wire.EntityName{Type: wire.Client, ID: "0"}, control.LosslessClient())
		p.start(p.Client, cfg.Receive)
		if err := p.connect(); err != nil {
			t.Fatal(err)
		}
		f(t, p)
	})
}

func newPair(t *testing.T, ctx context.Context, cfg Config) *Pair {
	p := &Pair{
		Context: ctx, t: t, cfg: cfg, began: time.Now(), timer: time.NewTimer(0),
		woken: make(chan struct{}, 1), acts: make(chan func()), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	if cfg.Network.Latency == 0 {
		cfg.Network.Latency = latency
	}
	cfg.Network.Wake = p.wake
	p.Network = simnet.New(cfg.Seed, cfg.Network)
	p.ServerHost = p.Network.Host(netip.MustParseAddr("10.0.0.1"))
	p.ClientHost = p.Network.Host(netip.MustParseAddr("10.0.0.2"))
	go p.run()
	return p
}

// connect makes the server and the connection to it. The error is that of Config.Open.
func (p *Pair) connect() (err error) {
	p.Server = p.messenger(p.cfg.Server, p.ServerHost, wire.EntityName{Type: wire.OSD, ID: "0"}, control.StatefulServer())
	serve := p.cfg.Serve
	if p.cfg.Open != nil {
		if serve, err = p.cfg.Open(p); err != nil {
			return err
		}
	}
	p.start(p.Server, serve)
	addrs, err := p.Server.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.AddrPortFrom(p.ServerHost.IP(), 6800)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.Addr = addrs[0]
	if p.Conn, err = p.Client.Connect(p.Addr, p.Server.Name().Type); err == nil {
		err = p.Conn.WaitReady(p.Context)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return nil
}

// Restart is the sudden end of the server's process or, with power, the loss of power on
// its machine, which its disk sees as well (simnet.Host.Die), and the start of another
// process there, with the same configuration: Server and Addr are the new one's. Conn is
// marked down, so that its calls end, and is a new one. The error is that of Config.Open:
// the new process does not serve then, and Conn is the old one.
func (p *Pair) Restart(power bool) error {
	p.t.Helper()
	p.Do(func() { p.ServerHost.Die(power) })
	if err := p.shutdown(p.Server); err != nil {
		p.t.Fatalf("the rest of the server does not end: %v", err)
	}
	p.Conn.MarkDown()
	p.Do(func() { p.ServerHost.Die(power); p.ServerHost.Revive() })
	return p.connect()
}

func (p *Pair) messenger(cfg control.Config, host *simnet.Host, name wire.EntityName, policy control.Policy) *control.Messenger {
	if cfg.Name == (wire.EntityName{}) {
		cfg.Name = name
	}
	if cfg.Default == nil && cfg.Policies == nil {
		cfg.Default = &policy
	}
	cfg.Plane.Cores = max(cfg.Plane.Cores, 1)
	host.Run(&cfg.Plane, p.opened)
	m, err := control.New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *Pair) start(m *control.Messenger, d *control.Dispatcher) {
	var chain []*control.Dispatcher
	if d != nil {
		chain = append(chain, d)
	}
	if err := m.Start(chain...); err != nil {
		p.t.Error(err)
	}
}

// end shuts both messengers down, and then the network.
func (p *Pair) end() {
	for _, m := range []*control.Messenger{p.Client, p.Server} {
		if m == nil {
			continue
		}
		if err := p.shutdown(m); err != nil {
			p.t.Errorf("%v does not end: %v", m.Name(), err)
		}
	}
	close(p.stop)
	<-p.ended
}

func (p *Pair) shutdown(m *control.Messenger) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return m.Shutdown(ctx)
}

// Do runs f on the goroutine of the network, between two of its steps, and waits for it. f
// may change the network or a host, as ServerHost.ResetAll does. Not for a dispatcher.
func (p *Pair) Do(f func()) {
	done := make(chan struct{})
	p.acts <- func() { f(); close(done) }
	<-done
}

// Pass lets d of the bubble's time pass, in which the network and all goroutines go on. Not
// for a dispatcher.
func (p *Pair) Pass(d time.Duration) {
	over := make(chan struct{})
	p.Do(func() { p.Network.After(d, func() { close(over) }) })
	<-over
}

// Settle waits until no work is left at this moment: all sent messages have arrived, as far as
// the network has carried them, and were dispatched. Not for a dispatcher.
func (p *Pair) Settle() {
	quiet := make(chan struct{})
	p.acts <- func() { p.settled(quiet) }
	<-quiet
}

// The network and all cores move on one goroutine (run), by steps: an event of the network, or
// a turn of a core. Before each all other goroutines of the bubble have run until they wait.
// Without work it sleeps until the next event or timer is due, so that the bubble's time and
// that of the network are the same.

// opened keeps a core that is about to start, and has the network look at it: before that, work
// for the core wakes nobody.
func (p *Pair) opened(c *simnet.Core) {
	c.EndInTurn()
	p.mu.Lock()
	p.cores = append(p.cores, c)
	p.mu.Unlock()
	p.wake()
}

// wake has the network look for work. Any goroutine.
func (p *Pair) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *Pair) run() {
	defer close(p.ended)
	for {
		synctest.Wait()
		select {
		case <-p.stop:
			return
		case f := <-p.acts:
			f()
			continue
		default:
		}
		if p.step() {
			continue
		}
		if !p.sleep() {
			return
		}
	}
}

// sleep waits until there may be work. It returns false at the end.
func (p *Pair) sleep() bool {
	var due <-chan time.Time
	if at, ok := p.next(); ok {
		p.timer.Reset(at - time.Since(p.began))
		defer p.timer.Stop()
		due = p.timer.C
	}
	select {
	case <-p.woken:
	case <-due:
	case f := <-p.acts:
		f()
	case <-p.stop:
		return false
	}
	return true
}

// running are the cores that have not ended. Nobody else takes any out.
func (p *Pair) running() []*simnet.Core {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cores = slices.DeleteFunc(p.cores, (*simnet.Core).Gone)
	return p.cores
}

// step does one event or turn that is due now, and says whether there was one.
func (p *Pair) step() bool {
	p.Network.Advance(time.Since(p.began))
	now := p.Network.Now()
	ready := p.ready[:0]
	if at, ok := p.Network.Next(); ok && at <= now {
		ready = append(ready, nil)
	}
	for _, c := range p.running() {
		if at, ok := c.Deadline(); c.Busy() || ok && at <= now {
			ready = append(ready, c)
		}
	}
	if p.ready = ready; len(ready) == 0 {
		return false
	}
	c := ready[p.Network.Rand().IntN(len(ready))]
	if c == nil {
		return p.Network.Step()
	}
	if err := c.Turn(); err != nil {
		p.t.Errorf("core %d: %v", c.ID(), err)
	}
	c.Busy() // else it sleeps from now on: who gives it work wakes it, which is counted
	return true
}

// next is the time at which the next event or timer is due.
func (p *Pair) next() (at time.Duration, ok bool) {
	at, ok = p.Network.Next()
	for _, c := range p.running() {
		if d, armed := c.Deadline(); armed && (!ok || d < at) {
			at, ok = d, true
		}
	}
	return at, ok
}

// settled closes quiet when no work is left now. On the goroutine of the network.
func (p *Pair) settled(quiet chan struct{}) {
	defer close(quiet)
	for {
		synctest.Wait()
		if !p.step() {
			return
		}
	}
}

// OnOneProcessor has the process run one goroutine at a time and collect no garbage by
// itself, both of which change the order in which goroutines run, until end is called: so a
// test with a seed takes the same course again, as far as the machine lets it. The test calls
// runtime.GC now and then.
func OnOneProcessor() (end func()) {
	procs, percent := runtime.GOMAXPROCS(1), debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(percent)
		runtime.GOMAXPROCS(procs)
	}
}
