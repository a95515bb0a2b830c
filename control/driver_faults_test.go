package control_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/msgrtest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Whatever the kernel answers to a request of a core: every cell of the table of
// package faulty, over every engine, between real messengers. One of them, the hub, has
// a connection to each of two others, and one request of its cores fails. Nothing is lost,
// the other connection goes on, and the log has the cause once.

// driverTrial is one cell on one engine.
type driverTrial struct {
	faulty.Cell
	engine engine
	number int
}

// engine is a way to move bytes.
type engine struct {
	backend uring.Backend
	receive loop.ReceiveMode
}

func (c driverTrial) String() string {
	return title(string(c.engine.backend)+"-"+string(c.engine.receive), c.Cell)
}

// driverEngines are those of this build and kernel.
func driverEngines() []engine {
	list := []engine{{uring.Epoll, loop.ReceiveReady}}
	if uring.Probe().Ring && uring.Flavour != uring.Epoll {
		for _, receive := range []loop.ReceiveMode{loop.ReceiveAuto, loop.ReceiveReady, loop.ReceiveBuffers} {
			list = append(list, engine{uring.IOUring, receive})
		}
	}
	return list
}

// asks says whether a core asks for that on the engine.
func (e engine) asks(r faulty.Request) bool {
	switch r {
	case faulty.Receive, faulty.ReceiveEnd:
		return e.receive != loop.ReceiveReady
	case faulty.Ready, faulty.ReadyEnd, faulty.Read:
		return e.receive != loop.ReceiveBuffers
	}
	return true
}

// driverTrials are all of them, without those of requests in list.
func driverTrials(without ...faulty.Request) (out []driverTrial) {
	for _, e := range driverEngines() {
		for _, c := range faulty.Table() {
			if e.asks(c.Request) && !slices.Contains(without, c.Request) {
				out = append(out, driverTrial{c, e, len(out)})
			}
		}
	}
	return out
}

// seed makes choices that the next run makes in another way.
func (c driverTrial) seed(t *testing.T) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, c, seedOfSample(t)) // it does not fail
	return h.Sum64()
}

// nth is which of the requests fails.
func (c driverTrial) nth(seed uint64) int64 {
	most := uint64(40) // handshakes take ten, and messages the rest
	switch c.Request {
	case faulty.Accept, faulty.Detach, faulty.Close, faulty.Listen, faulty.Map: // a connection needs no second buffer
		most = 1
	case faulty.Adopt, faulty.AcceptEnd, faulty.Connect, faulty.ConnectEnd, faulty.Ready, faulty.Receive:
		most = 2
	case faulty.Read:
		most = 16
	case faulty.ReadyEnd, faulty.ReceiveEnd: // there may be few more: one tells of many messages
		most = 8
	}
	nth := int64(1 + seed%most)
	if c.Request == faulty.Map {
		nth++ // the first one is for the core itself, which does not start without it
	}
	return nth
}

// accepting says whether the hub is the one that accepts.
func (c driverTrial) accepting(seed uint64) bool {
	switch c.Request {
	case faulty.Adopt, faulty.Accept, faulty.AcceptEnd:
		return true
	case faulty.Connect, faulty.ConnectEnd:
		return false
	}
	return seed/8%2 == 0
}

// TestEveryErrorOfTheKernelEndsByTheTable: the cells of what a core does while it
// runs.
// Matrix: FT-27, IO-20
func TestEveryErrorOfTheKernelEndsByTheTable(t *testing.T) {
	drivertest.LeavesNothing(t)
	trials := sampleOf(t, driverTrials(faulty.Open, faulty.Listen, faulty.Close), 11)
	leaks := drivertest.Leaks(t)
	spread(t, 8, len(trials), func(i int) string { return trials[i].String() }, func(t *testing.T, i int) { trials[i].run(t) })
	leaks()
}

// broken has a messenger use the engine with the fault, and tells what it logs.
func (e engine) broken(cfg *control.Config, ask func(faulty.Request) faulty.Fault, cores int, log *logText) {
	cfg.Plane = e.plane(cores, ask)
	cfg.Plane.Map = func(size int) (*uring.Memory, error) {
		if f := ask(faulty.Map); f.Errno != 0 {
			return nil, f.Errno
		}
		return uring.Map(size)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// size is that of the nth message on a stream to or from the hub.
func (c driverTrial) size(n uint64) int {
	step := 100_000
	if c.engine.receive == loop.ReceiveAuto && (c.Request == faulty.Receive || c.Request == faulty.ReceiveEnd) {
		step = 100
	}
	return int(n%5)*1000 + int(n%3)*step
}

func (c driverTrial) run(t *testing.T) {
	ctx, seed := deadline(t), c.seed(t)
	s := &faulty.Strike{At: c.Request, Fault: c.Fault, Nth: c.nth(seed)}
	cores := 1
	if c.Request == faulty.Wait || c.Request == faulty.Detach {
		cores = 2
	}
	var log logText
	p := pairing{"LLC", "SFS"}
	if seed/16%2 == 0 {
		p = pairing{"LP", "LP"}
	}
	// An answer of its own: memory that Retain cannot map is Go's.
	answers := withChain(&control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
		check(t, conn.Send(numbered(m.TID, control.NewMessage(m.Type, bytes.Clone(m.Front), nil))))
		return true
	}})
	server := func(name string, nonce uint32, change ...func(*nodetest.NodeConfig)) *nodetest.Node {
		return nodeOf(t, variant{backend: c.engine.backend}, "osd."+name, p.acceptor, nonce, append(change, answers)...)
	}
	client := func(name string, nonce uint32) control.Config {
		cfg := clientOf(c.engine.backend, entity(t, strings.Replace(connectorName(p.connector), "2", name, 1)), shortPolicies[p.connector]())
		cfg.Nonce = &nonce
		return cfg
	}
	var hub *control.Messenger
	var streams []*stream
	if c.accepting(seed) {
		node := server("1", 9, func(cfg *nodetest.NodeConfig) { c.engine.broken(&cfg.Config, s.Ask, cores, &log) })
		hub = node.Messenger
		streams = append(streams, oneStream(t, client("2", 2), node.Addr), oneStream(t, client("3", 3), node.Addr))
	} else {
		cfg := client("2", 2)
		c.engine.broken(&cfg, s.Ask, cores, &log)
		first := oneStream(t, cfg, server("1", 8).Addr)
		hub = first.m
		second, err := openStream(t, hub, server("3", 9).Addr)
		must(t, err)
		streams = append(streams, first, second)
	}
	left := 4 // rounds behind the fault
	for round := 1; round < 60 && left > 0; round++ {
		if s.Struck() {
			left--
		}
		for _, one := range streams {
			one.size = c.size
			must(t, one.push())
		}
		for i, one := range streams {
			if err := one.settle(ctx); err != nil {
				t.Fatalf("round %d on stream %d, struck %v: %v\n%s", round, i, s.Struck(), err, log.String())
			}
		}
		if c.Request == faulty.Detach && round == 3 {
			must(t, hub.RemoveCore(ctx, hub.Conns()[0].Core().ID())) // its sockets leave it
		}
	}
	if !s.Struck() {
		t.Fatalf("there was no %s number %d", s.At, s.Nth)
	}
	c.checkFaults(t, hub)
	if c.told() {
		if err := msgrtest.Until(ctx, func() bool { return strings.Contains(log.String(), c.Fault.Errno.Error()) }); err != nil {
			t.Errorf("the log does not have the cause: %v\n%s", err, log.String())
		}
	}
	c.checkLog(t, log.String())
}

// told says whether the log must have the cause.
func (c driverTrial) told() bool {
	return c.Fault.Errno != 0 && c.Then != faulty.Again && c.Then != faulty.Unnoticed
}

// checkFaults: which connections have noticed.
func (c driverTrial) checkFaults(t *testing.T, hub *control.Messenger) {
	t.Helper()
	most := 1
	switch c.Then {
	case faulty.Again, faulty.Later, faulty.Unnoticed:
		most = 0
	case faulty.CoreFails:
		most = 2
	}
	struck, list := 0, ""
	for _, conn := range hub.Conns() {
		st := connStats(t, conn)
		if st.Counters.Faults > 0 {
			struck++
		}
		list += fmt.Sprintf("\n%s: %+v", st.Peer, st.Counters)
	}
	if struck > most {
		t.Errorf("%d connections have noticed, want %d at most:%s", struck, most, list)
	}
}

// checkLog: the log has the cause once, above the level of single events.
func (c driverTrial) checkLog(t *testing.T, text string) {
	t.Helper()
	loud := 0
	for line := range strings.Lines(text) {
		if c.Fault.Errno != 0 && strings.Contains(line, c.Fault.Errno.Error()) && !strings.Contains(line, "level=DEBUG") {
			loud++
		}
	}
	most := 1
	switch c.Then {
	case faulty.Again, faulty.Unnoticed:
		most = 0
	case faulty.CoreFails:
		most = 3 // the core and its connections
	}
	if loud > most {
		t.Errorf("%d lines with the cause above the level of debugging, want %d at most:\n%s", loud, most, text)
	}
}

// The cells of set-up and of shutdown.

func cellsOf(r faulty.Request) []driverTrial {
	return slices.DeleteFunc(driverTrials(), func(c driverTrial) bool { return c.Request != r })
}

// plane is one whose drivers are asked for.
func (e engine) plane(cores int, ask func(faulty.Request) faulty.Fault) loop.Config {
	return loop.Config{
		Cores: cores, Receive: e.receive,
		Open: faulty.OpenWith(func(int) (uring.Driver, error) { return uring.Open(uring.Config{Backend: e.backend}) }, ask),
	}
}

// A listener that cannot be opened: the bind says why, and the next one works; so does
// a core that is added and cannot listen.
// Matrix: IO-20
func TestEveryErrorOfABindIsClearAndTheNextOneWorks(t *testing.T) {
	drivertest.LeavesNothing(t)
	trials := sampleOf(t, cellsOf(faulty.Listen), 5)
	spread(t, 8, len(trials), func(i int) string { return trials[i].String() }, func(t *testing.T, i int) {
		c, ctx := trials[i], deadline(t)
		s := &faulty.Strike{At: faulty.Listen, Fault: c.Fault, Nth: 1}
		hub := nodeOf(t, variant{backend: c.engine.backend}, "osd.1", "SFS", 9, withChain(echoer()), func(cfg *nodetest.NodeConfig) {
			cfg.Unbound, cfg.Plane = true, c.engine.plane(1, s.Ask)
		})
		wantError(t, "Bind", onlyError(hub.Bind(v2(ownHost(), 0))), c.Fault.Errno)
		addrs := bind(t, hub, v2(ownHost(), 0))
		s.Nth = 3
		wantError(t, "a core that cannot listen", onlyError(hub.AddCore(ctx)), c.Fault.Errno)
		eventually(t, ctx, "the end of that core", func() bool { return len(hub.Cores()) == 1 })
		if _, err := hub.AddCore(ctx); err != nil || len(hub.Cores()) != 2 {
			t.Errorf("the next one: %v, %d cores", err, len(hub.Cores()))
		}
		client := nodeOf(t, variant{backend: c.engine.backend}, "client.2", "LLC", 2)
		conn := connect(t, client, addrs[0], wire.OSD)
		send(t, conn, 1)
		receives(t, ctx, client, 1001)
	})
}

// A driver that cannot be closed: the messenger ends all the same.
// Matrix: IO-20
func TestEveryErrorAtTheEndIsLoggedAndEndsNothingElse(t *testing.T) {
	drivertest.LeavesNothing(t)
	leaks := drivertest.Leaks(t)
	kept := false
	for _, c := range sampleOf(t, cellsOf(faulty.Close), 3) {
		t.Run(c.String(), func(t *testing.T) {
			var log logText
			s := &faulty.Strike{At: faulty.Close, Fault: c.Fault, Nth: 1}
			hub := nodeOf(t, variant{backend: c.engine.backend}, "osd.1", "SFS", 9, withChain(echoer()), func(cfg *nodetest.NodeConfig) {
				c.engine.broken(&cfg.Config, s.Ask, 2, &log)
			})
			client := nodeOf(t, variant{backend: c.engine.backend}, "client.2", "LLC", 2)
			send(t, client.Dial(hub), 1)
			receives(t, deadline(t), client, 1001)
			check(t, hub.Shutdown(deadline(t)))
			if n := strings.Count(log.String(), c.Fault.Errno.Error()); n != 1 {
				t.Errorf("%d lines with the cause:\n%s", n, log.String())
			}
		})
		kept = kept || c.Fault.Errno == unix.EBUSY // the kernel may still write into it
	}
	if !kept {
		leaks()
	}
}
