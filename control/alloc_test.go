//go:build !invariants && !race

package control_test

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// Both ends and the simulated network between them are counted. Of the ends the one
// that accepts takes about 120 pieces of memory on a real socket.
func TestAnAcceptedConnectionTakesFewPiecesOfMemory(t *testing.T) {
	onAccepting(t, func(t *testing.T, a *accepting) {
		least := uint64(1 << 63)
		for range 5 {
			var before, behind runtime.MemStats
			runtime.ReadMemStats(&before)
			a.accept()
			runtime.ReadMemStats(&behind)
			least = min(least, behind.Mallocs-before.Mallocs)
			a.drop()
		}
		const most = 290 // 270, and some air for other releases of Go
		if least > most {
			t.Errorf("%d pieces of memory, want at most %d", least, most)
		}
	})
}

// caller is a client that keeps requests under way.
type caller struct {
	t        testing.TB
	conn     *control.Conn
	requests []*control.Request
	left     int // to be sent
	missing  int // answers
	done     chan struct{}
}

func newCaller(t testing.TB, depth int) *caller {
	server := startMessenger(t, oneCore(t, "osd.0", uring.Auto), echoAll())
	listenOn(t, server)
	client := startMessenger(t, oneCore(t, "client.admin", uring.Auto))
	p := &caller{t: t, done: make(chan struct{}, 1), conn: connect(t, client, server.Addrs()[0], wire.OSD)}
	payload := make([]byte, 64)
	for range depth {
		p.requests = append(p.requests, &control.Request{Message: control.NewMessage(1, payload, nil), Done: p.answered})
	}
	must(t, p.conn.WaitReady(t.Context()))
	return p
}

// run makes n requests.
func (p *caller) run(n int) {
	depth := min(n, len(p.requests))
	p.missing, p.left = n, n-depth
	for _, r := range p.requests[:depth] {
		p.start(r)
	}
	<-p.done
}

func (p *caller) start(r *control.Request) {
	r.Message.Retain()
	check(p.t, p.conn.Start(r))
}

// answered runs on the core.
func (p *caller) answered(r *control.Request, _ *control.Message, err error) {
	check(p.t, err)
	if p.missing--; p.missing == 0 {
		p.done <- struct{}{}
	} else if p.left > 0 {
		p.left--
		p.start(r)
	}
}

func TestStartedCallsDoNotAllocate(t *testing.T) {
	p := newCaller(t, 8)
	const requests = 2000
	p.run(requests)
	if n := testing.AllocsPerRun(5, func() { p.run(requests) }); n > requests/20 { // lists that still grow, now and then
		t.Errorf("%v allocations in %d requests", n, requests)
	}
}

// counts is of each core, without a lock.
var counts loop.Local[int]

// A task goes from core to core, arms a timer there, and counts in what it finds.
func TestTasksTimersAndValuesOfCoresDoNotAllocate(t *testing.T) {
	const rounds, cores = 400, 2
	m := newMessenger(t, control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: loop.Config{Cores: cores}})
	var task loop.Task
	var timers [cores]loop.Timer
	done := make(chan struct{})
	left := 0
	fire := func(c *loop.Core) { m.Core((c.ID() + 1) % cores).Post(&task) }
	for i := range timers {
		timers[i].Fire = func(c *loop.Core, _ time.Duration) { fire(c) }
	}
	task.Run = func(c *loop.Core) {
		*counts.Of(c)++
		if left--; left == 0 {
			done <- struct{}{}
			return
		}
		if left%2 == 0 {
			c.Arm(&timers[c.ID()], c.Now())
			return
		}
		fire(c)
	}
	run := func() {
		left = rounds
		m.Core(0).Post(&task)
		<-done
	}
	run()
	if n := testing.AllocsPerRun(3, run); n > rounds/100 {
		t.Errorf("%v allocations in %d rounds", n, rounds)
	}
}

// The server of the example, and a client that asks in turn for a write and a read, both
// on their cores.
// Matrix: RL-11
func TestRequestsOnFilesDoNotAllocate(t *testing.T) {
	requestsDoNotAllocate(t, loop.FileOptions{})
}

// Each request makes the file full, so that its connection is held and goes on.
// Matrix: RL-11
func TestRequestsOnAFileThatIsFullDoNotAllocate(t *testing.T) {
	requestsDoNotAllocate(t, loop.FileOptions{Ops: 1})
}

func requestsDoNotAllocate(t *testing.T, opt loop.FileOptions) {
	overRealDisks(t, diskOptions{file: opt}, func(t *testing.T, b *blockBed) {
		client := newMessenger(t, oneCore(t, "client.1", uring.Auto))
		number := binary.LittleEndian.AppendUint32(nil, 3)
		done := make(chan struct{})
		left := 0
		next := func(c *loop.Core, conn *control.Conn) {
			typ, n := readBlock, 0
			if left%2 == 0 {
				typ, n = writeBlock, blockSize
			}
			m, err := control.LendMessage(c, typ, n)
			if err != nil {
				t.Error(err)
				return
			}
			m.Front = number
			check(t, conn.Send(m))
		}
		must(t, client.Start(&control.Dispatcher{Fast: func(conn *control.Conn, m *control.Message) bool {
			if m.Type != blockDone {
				t.Errorf("%s", m.Front)
			}
			if left--; left == 0 {
				done <- struct{}{}
			} else {
				next(conn.Core(), conn)
			}
			return true
		}}))
		addrs := b.server.Addrs()
		conn := connect(t, client, addrs[0], wire.OSD)
		must(t, conn.WaitReady(b.ctx))
		const requests = 100
		start := loop.Task{Run: func(c *loop.Core) { next(c, conn) }}
		run := func() {
			left = requests
			conn.Post(&start)
			<-done
		}
		run()
		// What requests allocate they allocate each time. Now and then somebody else does: a
		// thread that the runtime starts takes seven allocations.
		least := testing.AllocsPerRun(1, run)
		for range 10 {
			if least == 0 {
				return
			}
			least = min(least, testing.AllocsPerRun(1, run))
		}
		t.Errorf("%v allocations in %d requests, and never fewer", least, requests)
	})
}
