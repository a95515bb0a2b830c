//go:build !invariants && !race

package control_test

import (
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// A task goes from core to core, arms a timer there, and counts in what it finds.
func TestTasksTimersAndValuesOfCoresDoNotAllocate(t *testing.T) {
	const rounds, cores = 400, 2
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Plane: loop.Config{Cores: cores}})
	must(t, err)
	endWithTest(t, m)
	var task loop.Task
	var timers [cores]loop.Timer
	done := make(chan struct{})
	left := 0
	fire := func(c *loop.Core) { m.Core((c.ID() + 1) % cores).Post(&task) }
	for i := range timers {
		timers[i].Fire = func(c *loop.Core, _ time.Duration) { fire(c) }
	}
	task.Run = func(c *loop.Core) {
		spots.Of(c).count++
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
