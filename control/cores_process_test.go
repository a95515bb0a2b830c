package control_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

const childEnv = "RINGMSGR_TEST_CHILD"

// child runs the test once more, in a process of its own that begins on the
// given CPUs, all if there are none. procs is its GOMAXPROCS.
func child(t *testing.T, procs int, cpus ...int) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	return runPrepared(cmd, func() error {
		if len(cpus) == 0 {
			return nil
		}
		var set unix.CPUSet
		for _, c := range cpus {
			set.Set(c)
		}
		return unix.SchedSetaffinity(0, &set)
	})
}

// runPrepared runs a command and returns what it wrote. prepare changes the thread
// that starts it, and with it the process that begins; that thread ends.
func runPrepared(cmd *exec.Cmd, prepare func() error) (string, error) {
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := prepare(); err != nil {
			done <- result{err: err}
			return
		}
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	return string(r.out), r.err
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
		}{{1, nil}, {2*len(cpus) + 1, nil}, {1, []int{last}}, {4, []int{last}}} {
			if out, err := child(t, one.procs, one.cpus...); err != nil || !strings.Contains(out, "--- PASS: "+t.Name()) {
				t.Errorf("GOMAXPROCS=%d, CPUs %v: %v\n%s", one.procs, one.cpus, err, out)
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
		if err := c.Do(func(*loop.Core) {
			here, err := uring.AllowedCPUs()
			if err != nil {
				t.Error(err)
			}
			at <- here
		}); err != nil {
			t.Fatal(err)
		}
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
		out, err := child(t, runtime.GOMAXPROCS(0))
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Fatalf("the process ended with %v\n%s", err, out)
		}
		for _, want := range []string{"panic: a bug of the user's", "panickingDispatcher", "goroutine"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		return
	}
	server, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "1"}, Plane: loop.Config{Cores: 2}})
	must(t, err)
	must(t, server.Start(&control.Dispatcher{Fast: panickingDispatcher}))
	bindLoopback(t, server)
	c := newSessionClient(t, 0, server.Addrs()[0], nil)
	c.send(t)
	<-t.Context().Done() // the panic comes first
}

//go:noinline
func panickingDispatcher(*control.Conn, *control.Message) bool { panic("a bug of the user's") }
