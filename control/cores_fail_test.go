package control_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

const errBroken = unix.EOWNERDEAD

// breakable is a plane the cores of which can be broken by their number, once.
func breakable(backend uring.Backend, cores int) (loop.Config, func(m *control.Messenger, core int)) {
	flags := make([]atomic.Bool, cores)
	cfg := loop.Config{Cores: cores, Open: func(core int) (uring.Driver, error) {
		d, err := uring.Open(uring.Config{Backend: backend})
		if err != nil || flags[core].Load() {
			return d, err // the one that takes its place
		}
		return faulty.New(d, func(r faulty.Request) (f faulty.Fault) {
			if r == faulty.Wait && flags[core].Load() {
				f.Errno = errBroken
			}
			return f
		}), nil
	}}
	return cfg, func(m *control.Messenger, core int) {
		c := m.RawPlane().Core(core)
		flags[core].Store(true)
		_ = c.Do(func(*loop.Core) {}) // it may have noticed already
	}
}

// The driver of a core breaks for good: lossless sessions go on, on other
// cores, lossy ones end, and nobody who comes later notices.
// Matrix: IO-15
func TestAFailedCoreLeavesItsSessionsToTheOthers(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		const cores = 3
		plane, breakCore := breakable(backend, cores)
		log := &logText{}
		b := newCoreBench(t, control.Config{
			Plane: plane, Logger: slog.New(slog.NewTextHandler(log, nil)),
		}, backend)
		defer b.halt()
		b.weak = true
		b.run(4, 1)
		b.progress()
		for failed := range cores - 1 {
			breakCore(b.server, failed)
			eventually(t, b.ctx, "the failure in the statistics", func() bool {
				st := statsOf(t, b.server)
				return st.Cores[failed].State == "failed" && strings.Contains(st.Cores[failed].Failed, errBroken.Error())
			})
			b.progress()
			b.knockSome(20)
			for _, c := range b.server.Conns() {
				eventually(t, b.ctx, "every connection on a core that runs", func() bool {
					return c.Core().ID() > failed || c.State() == control.StateClosing
				})
			}
			if text := statsOf(t, b.server).String(); !strings.Contains(text, "failed") {
				t.Errorf("the failure is not in the text:\n%s", text)
			}
			if n := log.count("core failed"); n != failed+1 {
				t.Errorf("%d failures logged, want %d", n, failed+1)
			}
		}
		wantError(t, "the last core that runs", b.server.RemoveCore(b.ctx, cores-1), loop.ErrLastCore)
		wantError(t, "pinned", b.server.PinPeer(netip.AddrPortFrom(source(1), 0), 0), control.ErrUnsteered)
		for failed := range cores - 1 {
			must(t, b.server.RemoveCore(b.ctx, failed))
			if id, err := b.server.AddCore(b.ctx); err != nil || id != failed {
				t.Fatalf("core %d, %v in place of core %d", id, err, failed)
			}
			b.progress()
		}
		b.knockSome(100)
		for _, c := range statsOf(t, b.server).Cores {
			if c.Core < cores-1 && c.Accepts == 0 {
				t.Errorf("core %d accepts nothing", c.Core)
			}
		}
		b.stop()
		for _, s := range b.streams {
			if !s.weak && s.c.State() != control.StateReady {
				t.Errorf("conn %d is %v: %v", s.c.ID(), s.c.State(), s.c.Err())
			}
		}
	})
}

// The only core fails, and nobody is there to take its listener over. The next
// one listens in its place.
func TestACoreIsAddedAfterTheOnlyOneHasFailed(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		plane, fail := breakable(backend, 2)
		plane.Cores = 1
		b := newCoreBench(t, control.Config{Plane: plane}, backend)
		s := b.connect(b.client(false, 1))
		if s == nil {
			t.FailNow()
		}
		fail(b.server, 0)
		<-b.server.Failures()
		if id, err := b.server.AddCore(b.ctx); err != nil || id != 1 {
			t.Fatalf("added core %d, %v", id, err)
		}
		must(t, b.server.RemoveCore(b.ctx, 0))
		b.knockSome(3)
		s.exchange(1)
		b.stop()
	})
}

// stuckWrite is a lossless connection of the server on its only core whose peer
// does not read until go ahead is called; then every message comes, in order.
func stuckWrite(t *testing.T, b *coreBench) (peer *control.Conn, goAhead func()) {
	t.Helper()
	const count = 64
	policy := control.LosslessClient()
	policy.Messages = loop.NewThrottle(1)
	first, got := make(chan *control.Message, 1), make(chan uint64, count)
	m := startMessenger(t, clientOf(b.backend, wire.EntityName{Type: wire.Client, ID: "slow"}, policy), &control.Dispatcher{Fast: func(_ *control.Conn, m *control.Message) bool {
		if m.TID == 1 {
			m.Retain()
			first <- m
		}
		got <- m.TID
		return true
	}})
	conn := connect(t, m, b.at, wire.OSD)
	must(t, conn.WaitReady(b.ctx))
	eventually(t, b.ctx, "the server's connection", func() bool { return len(b.server.Conns()) == 1 })
	peer = b.server.Conns()[0]
	for i := range count {
		msg := numbered(uint64(i+1), control.NewMessage(1, nil, make([]byte, 1<<20)))
		must(t, peer.Send(msg))
	}
	kept := <-first
	last, same := uint64(0), 0
	eventually(t, b.ctx, "a write that is stuck", func() bool {
		st := connStats(t, peer)
		if same++; !st.IO.Writing || st.IO.MessagesOut != last {
			same = 0
		}
		last = st.IO.MessagesOut
		return same > 100
	})
	return peer, func() {
		t.Helper()
		kept.Release()
		for want := uint64(1); want <= count; want++ {
			if tid := arrives(t, fmt.Sprint("message ", want), got); tid != want {
				t.Fatalf("message %d, want %d", tid, want)
			}
		}
	}
}

// A connection is on its way to a core that is removed before it arrives, and
// the core that it comes from is removed twice: it goes on to a third one, with
// the TCP connection that it has.
func TestAConnectionGoesOnFromACoreThatIsRemovedBeforeItArrives(t *testing.T) {
	overCoreBackends(t, func(t *testing.T, backend uring.Backend) {
		b := newCoreBench(t, control.Config{Plane: loop.Config{Cores: 1}}, backend)
		peer, goAhead := stuckWrite(t, b)
		removed := make(chan error, 3)
		remove := func(core int) {
			go func() { removed <- b.server.RemoveCore(b.ctx, core) }()
			eventually(t, b.ctx, "the state of the core", func() bool {
				c := b.server.RawPlane().Core(core)
				return c != nil && c.State() == loop.CoreDraining
			})
		}
		must(t, onlyError(b.server.AddCore(b.ctx)))
		remove(0) // to core 1
		opts := []control.ConnectOption{control.OnCore(0), control.WithPolicy(control.LossyClient())}
		_, err := b.server.Connect(peerAddr(1), wire.OSD, opts...)
		wantError(t, "Connect on a core that is being removed", err, control.ErrConfig)
		must(t, onlyError(b.server.AddCore(b.ctx)))
		remove(1)
		remove(0)
		// Whoever has the cores next comes behind both removals.
		if id, err := b.server.AddCore(b.ctx); err != nil || id != 3 {
			t.Fatalf("core %d, %v", id, err)
		}
		goAhead()
		for range cap(removed) {
			if err := <-removed; err != nil && !errors.Is(err, loop.ErrNoCore) {
				t.Error(err)
			}
		}
		if st, err := peer.Stats(); err != nil || st.Counters.Faults != 0 || st.Placement.Core < 2 {
			t.Errorf("%+v on core %d, %v", st.Counters, st.Placement.Core, err)
		}
		b.stop()
	})
}

// A core that took the number of a removed one has a listener that was another's
// before; steering goes on, here and with successors that have other numbers of cores.
func TestCoresThatCameAndWentAreSteered(t *testing.T) {
	needSteering(t)
	drivertest.LeavesNothing(t)
	b := newCoreBench(t, control.Config{Steer: control.SteerTable, Plane: loop.Config{Cores: 2}}, uring.Auto)
	check := func(m *control.Messenger, when string) {
		t.Helper()
		if st := statsOf(t, m).Steering; !st.Active {
			t.Fatalf("%s: %+v", when, st)
		}
		want, _ := arrived(t, m, 0)
		total := 0
		for core := range want {
			must(t, m.PinPeer(netip.AddrPortFrom(source(core), 0), core))
			for range 5 {
				knock(t, netip.AddrPortFrom(source(core), 0), b.at.AddrPort)
			}
			want[core] += 5
			total += want[core]
		}
		got, _ := arrived(t, m, total)
		expectCores(t, got, want)
	}
	for round := range 3 {
		must(t, b.server.RemoveCore(b.ctx, round%2))
		if id, err := b.server.AddCore(b.ctx); err != nil || id != round%2 {
			t.Fatalf("core %d, %v", id, err)
		}
		check(b.server, fmt.Sprint("round ", round))
	}
	m := b.server
	for _, cores := range []int{2, 3, 1, 2} {
		cfg := control.Config{Name: m.Name(), Steer: control.SteerTable, Plane: loop.Config{Cores: cores}}
		m = succeed(t, b.ctx, m, cfg, &control.Dispatcher{})
		endWithTest(t, m)
		if cores > 1 {
			check(m, fmt.Sprint("a successor with cores: ", cores))
		} else if statsOf(t, m).Steering.Active {
			t.Error("one core is steered")
		}
	}
}

const childEnv = "RINGMSGR_TEST_CHILD"

// child runs the test once more, in a process of its own. procs is its GOMAXPROCS. prepare, if
// not nil, changes the thread that starts it, and with it the process that begins; that thread ends.
func child(t *testing.T, procs int, prepare func() error) error {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	return <-async(func() error {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if prepare != nil {
			if err := prepare(); err != nil {
				return err
			}
		}
		out, err := cmd.CombinedOutput()
		if err == nil && !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			err = errors.New("it has not passed")
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	})
}

// onCPUs has a thread run on the given CPUs.
func onCPUs(cpus []int) func() error {
	return func() error {
		var set unix.CPUSet
		for _, c := range cpus {
			set.Set(c)
		}
		return unix.SchedSetaffinity(0, &set)
	}
}

func isChild(t *testing.T) bool { return os.Getenv(childEnv) == t.Name() }

// Fewer, as many and more cores than CPUs, pinned or not, on a part of the
// machine, with a GOMAXPROCS that has nothing to do with either: everything
// works, and cores come and go.
// Matrix: XC-14
func TestAnyNumberOfCoresWorksOnAnyPartOfTheMachine(t *testing.T) {
	cpus, err := uring.AllowedCPUs()
	must(t, err)
	if !isChild(t) {
		last := cpus[len(cpus)-1]
		for _, one := range []struct {
			procs int
			cpus  []int
		}{{1, cpus}, {2*len(cpus) + 1, cpus}, {1, []int{last}}, {4, []int{last}}} {
			if err := child(t, one.procs, onCPUs(one.cpus)); err != nil {
				t.Errorf("GOMAXPROCS=%d, CPUs %v: %v", one.procs, one.cpus, err)
			}
		}
		return
	}
	for _, cores := range []int{1, len(cpus), 2*len(cpus) + 1} {
		for _, pin := range []bool{false, true} {
			b := newCoreBench(t, control.Config{Plane: loop.Config{Cores: cores, Pin: pin, StallAfter: -1}}, uring.Auto)
			b.run(2, cores)
			b.progress()
			id, err := b.server.AddCore(b.ctx)
			if err != nil || id != cores {
				t.Fatalf("core %d, %v", id, err)
			}
			b.progress()
			expectPinned(t, b.server, cpus, pin)
			must(t, b.server.RemoveCore(b.ctx, 0))
			b.progress()
			b.stop()
			b.unbroken()
		}
	}
}

// expectPinned looks where the threads of the cores may run.
func expectPinned(t *testing.T, m *control.Messenger, cpus []int, pin bool) {
	t.Helper()
	for _, c := range m.RawPlane().All() {
		at := make(chan []int, 1)
		must(t, c.Do(func(*loop.Core) {
			here, err := uring.AllowedCPUs()
			check(t, err)
			at <- here
		}))
		want := cpus
		if pin {
			want = []int{cpus[c.ID()%len(cpus)]}
		}
		if got := <-at; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("core %d runs on CPUs %v, want %v", c.ID(), got, want)
		}
	}
}

// A dispatcher that panics ends the process, loudly: no core is silently dead.
// Matrix: XC-16, INV-08
func TestAPanicOfADispatcherEndsTheProcess(t *testing.T) {
	if !isChild(t) {
		err := child(t, runtime.GOMAXPROCS(0), nil)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Fatalf("the process ended with %v", err)
		}
		for _, want := range []string{"panic: a bug of the user's", "panickingDispatcher", "goroutine"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in\n%v", want, err)
			}
		}
		return
	}
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: loop.Config{Cores: 2}})
	must(t, err)
	must(t, server.Start(&control.Dispatcher{Fast: panickingDispatcher}))
	listenOn(t, server)
	c := oneClient(t, 0, server.Addrs()[0])
	must(t, c.push())
	<-t.Context().Done() // the panic comes first
}

//go:noinline
func panickingDispatcher(*control.Conn, *control.Message) bool { panic("a bug of the user's") }
