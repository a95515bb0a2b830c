package control_test

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control/msgrtest"
)

// XC-14: the number of cores has nothing to do with that of CPUs, of those that
// the process may use, or of threads that run Go code.
func TestCoresNeedNoCPUsOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		name  string
		cores int
		pin   bool
		limit func(t *testing.T)
	}{
		{"one core", 1, false, func(*testing.T) {}},
		{"more cores than CPUs", 2*runtime.NumCPU() + 1, false, func(*testing.T) {}},
		{"one thread for Go code", 4, false, func(t *testing.T) {
			before := runtime.GOMAXPROCS(1)
			t.Cleanup(func() { runtime.GOMAXPROCS(before) })
		}},
		{"one CPU for all", 4, true, onOneCPU},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, v := range newest {
				t.Run(v.String(), func(t *testing.T) {
					msgrtest.CheckLeaks(t)
					c.limit(t)
					ctx := deadline(t)
					cores := func(cfg *msgrtest.NodeConfig) { cfg.Plane.Cores, cfg.Plane.Pin = c.cores, c.pin }
					acceptor := nodeOf(t, v, "osd.1", "SFS", 1, cores, withChain(echoer()))
					connector := nodeOf(t, v, "client.2", "LLC", 2, cores)
					connector.Probe.Arm(msgrtest.MustPoint("MESSAGE_WRITE"), 20, msgrtest.Fault())
					const senders, each = 8, 20
					crowd(t, connector.Dial(acceptor), senders, each).Wait()
					inOrder(t, ctx, acceptor, senders, each)
					connector.Await(ctx, "established C(2,1,1,2)")
				})
			}
		})
	}
}

// onOneCPU restricts all threads of the process, and those to come, until the
// end of the test.
func onOneCPU(t *testing.T) {
	t.Helper()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(before) * 64 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	restrict := func(set *unix.CPUSet) {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range threads {
			if tid, err := strconv.Atoi(e.Name()); err == nil {
				_ = unix.SchedSetaffinity(tid, set) // a thread that has ended needs none
			}
		}
	}
	restrict(&one)
	t.Cleanup(func() { restrict(&before) })
}
