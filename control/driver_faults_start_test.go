package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/internal/nodetest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/faulty"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// The cells of set-up and of shutdown.

// cellsOf are the trials of one request.
func cellsOf(r faulty.Request) (out []driverTrial) {
	for _, c := range driverTrials() {
		if c.Request == r {
			out = append(out, c)
		}
	}
	return out
}

// plane is one whose drivers are asked for.
func (e engine) plane(cores int, ask func(faulty.Request) faulty.Fault) loop.Config {
	return loop.Config{
		Cores: cores, Receive: e.receive,
		Open: faulty.OpenWith(func(int) (uring.Driver, error) { return uring.Open(uring.Config{Backend: e.backend}) }, ask),
	}
}

// A core that cannot open its driver: the messenger does not start, or goes on with
// the cores that it has.
// Matrix: IO-20
func TestEveryErrorOfASetUpIsClearAndLeavesNothing(t *testing.T) {
	nodetest.CheckLeaks(t)
	mapped := drivertest.Mapped(t)
	for _, c := range sampleOf(t, cellsOf(faulty.Open), 5) {
		for nth := range int64(3) {
			t.Run(title(c, nth), func(t *testing.T) {
				s := &faulty.Strike{At: faulty.Open, Fault: c.Fault, Nth: nth + 1}
				m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: c.engine.plane(2, s.Ask)})
				if nth < 2 {
					if !errors.Is(err, c.Fault.Errno) || !strings.Contains(err.Error(), fmt.Sprintf("core %d", nth)) {
						t.Errorf("error %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer end(t, m)
				if err := m.Start(); err != nil {
					t.Fatal(err)
				}
				if _, err := m.AddCore(deadline(t)); !errors.Is(err, c.Fault.Errno) || len(m.Cores()) != 2 {
					t.Errorf("error %v, %d cores", err, len(m.Cores()))
				}
				if _, err := m.AddCore(deadline(t)); err != nil || len(m.Cores()) != 3 {
					t.Errorf("the next one: %v, %d cores", err, len(m.Cores()))
				}
			})
		}
	}
	if n := drivertest.Settled(mapped, func() int { return drivertest.Mapped(t) }); n > mapped {
		t.Errorf("%d bytes mapped before, %d after", mapped, n)
	}
}

// A listener that cannot be opened: the bind says why, and the next one works; so does
// a core that is added and cannot listen.
// Matrix: IO-20
func TestEveryErrorOfABindIsClearAndTheNextOneWorks(t *testing.T) {
	nodetest.CheckLeaks(t)
	trials := sampleOf(t, cellsOf(faulty.Listen), 5)
	spread(t, 8, len(trials), func(i int) string { return trials[i].String() }, func(t *testing.T, i int) {
		c, ctx := trials[i], deadline(t)
		s := &faulty.Strike{At: faulty.Listen, Fault: c.Fault, Nth: 1}
		hub := nodeOf(t, variant{backend: c.engine.backend}, "osd.1", "SFS", 9, withChain(echoer()), func(cfg *nodetest.NodeConfig) {
			cfg.Unbound, cfg.Plane = true, c.engine.plane(1, s.Ask)
		})
		if _, err := hub.Bind(v2(ownHost(), 0)); !errors.Is(err, c.Fault.Errno) {
			t.Errorf("error %v", err)
		}
		addrs, err := hub.Bind(v2(ownHost(), 0))
		if err != nil {
			t.Fatal(err)
		}
		s.Nth = 3
		if _, err := hub.AddCore(ctx); !errors.Is(err, c.Fault.Errno) {
			t.Errorf("a core that cannot listen: %v", err)
		}
		eventually(t, ctx, "the end of that core", func() bool { return len(hub.Cores()) == 1 })
		if _, err := hub.AddCore(ctx); err != nil || len(hub.Cores()) != 2 {
			t.Errorf("the next one: %v, %d cores", err, len(hub.Cores()))
		}
		client := nodeOf(t, variant{backend: c.engine.backend}, "client.2", "LLC", 2)
		conn, err := client.Connect(addrs[0], wire.OSD)
		if err != nil {
			t.Fatal(err)
		}
		send(t, conn, 1)
		receives(t, ctx, client, 1001)
	})
}

// A driver that cannot be closed: the messenger ends all the same.
// Matrix: IO-20
func TestEveryErrorAtTheEndIsLoggedAndEndsNothingElse(t *testing.T) {
	nodetest.CheckLeaks(t)
	mapped := drivertest.Mapped(t)
	kept := false
	for _, c := range sampleOf(t, cellsOf(faulty.Close), 3) {
		t.Run(c.String(), func(t *testing.T) {
			var log lockedLog
			s := &faulty.Strike{At: faulty.Close, Fault: c.Fault, Nth: 1}
			hub := nodeOf(t, variant{backend: c.engine.backend}, "osd.1", "SFS", 9, withChain(echoer()), c.engine.broken(s.Ask, 2, &log))
			client := nodeOf(t, variant{backend: c.engine.backend}, "client.2", "LLC", 2)
			send(t, client.Dial(hub), 1)
			receives(t, deadline(t), client, 1001)
			if err := hub.Shutdown(deadline(t)); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), c.Fault.Errno.Error()); n != 1 {
				t.Errorf("%d lines with the cause:\n%s", n, log.String())
			}
		})
		kept = kept || c.Fault.Errno == unix.EBUSY // the kernel may still write into it
	}
	if kept {
		return
	}
	if n := drivertest.Settled(mapped, func() int { return drivertest.Mapped(t) }); n > mapped {
		t.Errorf("%d bytes mapped before, %d after", mapped, n)
	}
}
