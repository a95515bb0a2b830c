package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

// goodMachine has everything.
func goodMachine() *findings {
	return &findings{
		cfg: loop.Config{Cores: 2}, procs: 4, receive: "auto", why: "each connection by its frames",
		info:     uring.Info{Backend: uring.IOUring, Receive: true},
		steering: bpf.Info{Migration: true},
		machine: uring.Machine{
			Flavour: uring.IOUring, Kernel: "6.12.1", CPUs: []int{0, 1, 2, 3}, Ring: true, Receive: true, Seccomp: "off",
			Features:     []uring.Feature{{Name: "one", Have: true, Since: "6.0"}, {Name: "two", Have: true, Since: "6.1"}},
			Sysctls:      map[string]string{"net.core.somaxconn": "4096"},
			Memlock:      uring.Limit{Soft: math.MaxUint64, Hard: math.MaxUint64},
			Files:        uring.Limit{Soft: 20000, Hard: 524288},
			Capabilities: []uring.Capability{{Name: "CAP_BPF", Have: true, For: "steering"}},
		},
	}
}

// poorMachine is a container with the usual restrictions.
func poorMachine() *findings {
	f := goodMachine()
	refused := &uring.SetupError{Call: "io_uring_setup", Errno: unix.EPERM, Cause: "a filter forbids it", Remedy: "allow it"}
	f.cfg.Cores, f.procs = 8, 2
	f.info, f.receive, f.why = uring.Info{Backend: uring.Epoll, Fallback: refused.Error()}, "ready", "the engine has no receive buffers"
	f.ringErr = fmt.Errorf("open driver: %w", refused)
	f.steeringErr = &bpf.LoadError{Missing: "CAP_BPF", Remedy: "grant it", Err: unix.EPERM}
	f.machine.Ring, f.machine.Receive, f.machine.RingWhy, f.machine.Features = false, false, refused.Error(), nil
	f.machine.Seccomp = "filter"
	f.machine.CPUs = []int{2}
	f.machine.Files = uring.Limit{Soft: 1024, Hard: 1024}
	f.machine.Memlock = uring.Limit{Soft: 65536, Hard: 65536}
	f.machine.Sysctls["net.core.somaxconn"] = "128"
	f.machine.Capabilities[0].Have = false
	return f
}

func printed(r *diagnosis) string {
	var b strings.Builder
	r.print(&b)
	return b.String()
}

func TestDoctorReportsAGoodAndAPoorMachine(t *testing.T) {
	golden(t, "doctor-good", printed(goodMachine().assess()))
	golden(t, "doctor-poor", printed(poorMachine().assess()))

	impossible := poorMachine()
	impossible.cfg.Driver.Backend = uring.IOUring
	impossible.coresErr = fmt.Errorf("start cores: %w", impossible.ringErr)
	r := impossible.assess()
	if r.OK || r.Backend != "" || r.Checks[0].State != stateProblem || r.Checks[0].Remedy != "allow it" {
		t.Errorf("%+v", r)
	}
	golden(t, "doctor-impossible", printed(r))

	impossible.coresErr = errors.New("some other reason")
	if c := impossible.assess().Checks[0]; c.Found != "some other reason" || !strings.Contains(c.Remedy, "--backend auto") {
		t.Errorf("%+v", c)
	}
}

func TestDoctorWarnsOfCoresThatShareCPUs(t *testing.T) {
	f := goodMachine()
	f.cfg.Cores, f.cfg.Pin, f.procs = 4, true, 6
	if c := f.cpus(); c.State != stateNote || !strings.Contains(c.Remedy, "--pin") {
		t.Errorf("as many pinned cores as CPUs: %+v", c)
	}
	f.cfg.Pin = false
	if c := f.cpus(); c.State != stateOK {
		t.Errorf("as many cores as CPUs: %+v", c)
	}
}

// Matrix: IO-14
func TestDoctorTriesThisMachine(t *testing.T) {
	r := ringmsgr(t, "doctor", "--json", "--cores", "1", "--backend", "epoll").want(t, cli.OK)
	d := decode[diagnosis](t, r)
	if !d.OK || d.Backend != "epoll" || d.Cores != 1 || d.Receive != "ready" || len(d.Checks) != 11 || len(d.Machine.CPUs) == 0 {
		t.Errorf("doctor says %s", r.stdout)
	}
	r = ringmsgr(t, "doctor").want(t, cli.OK)
	if !strings.Contains(r.stdout, "A messenger can run here") {
		t.Errorf("doctor says %s", r.stdout)
	}
	if s := run(t.Context(), env{stdout: clitest.Full{}, stderr: io.Discard}, []string{"doctor"}); s != cli.Failed {
		t.Errorf("with its output on a full disk it has status %d", s)
	}
}

func TestDoctorPrintsTheBoundsInForce(t *testing.T) {
	r := ringmsgr(t, "doctor", "--limits").want(t, 0)
	golden(t, "doctor-limits", r.stdout)
	for line := range strings.Lines(r.stdout) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	got := decode[limitsReport](t, ringmsgr(t, "doctor", "--limits", "--json").want(t, 0)).Limits
	if want := (control.Config{}).Bounds(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
