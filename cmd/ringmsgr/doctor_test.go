package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// goodMachine has everything.
func goodMachine() *findings {
	return &findings{
		cfg: dataplane.Config{Cores: 2}, procs: 4, slack: "50000", receive: "auto", why: "each connection by its frames",
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
	f.cfg.Cores, f.procs, f.slack = 8, 2, ""
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
	r.print(env{stdout: &b})
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
	if !d.OK || d.Backend != "epoll" || d.Cores != 1 || d.Receive != "ready" || len(d.Checks) != 12 || len(d.Machine.CPUs) == 0 {
		t.Errorf("doctor says %s", r.stdout)
	}
	r = ringmsgr(t, "doctor").want(t, cli.OK)
	if !strings.Contains(r.stdout, "A messenger can run here") {
		t.Errorf("doctor says %s", r.stdout)
	}
}

func TestDoctorSaysHowFilesAreReadAndWritten(t *testing.T) {
	direct := uring.Alignment{Memory: 512, Offset: 4096}
	for _, c := range []struct {
		name    string
		s       uring.DiskSupport
		err     error
		backend uring.Backend
		state   checkState
		found   string
	}{
		{"ring", uring.DiskSupport{Alignment: direct, Registered: true}, nil, uring.IOUring, stateOK, "by the ring, in blocks of 4096"},
		{"pinned", uring.DiskSupport{Alignment: direct, Registered: true}, nil, uring.IOUring, stateOK, "buffers stay pinned"},
		{"not pinned", uring.DiskSupport{Alignment: direct, RegisteredWhy: "no room"}, nil, uring.IOUring, stateNote, "no registered buffers (no room)"},
		{"polled", uring.DiskSupport{Alignment: direct, Registered: true, Polled: true}, nil, uring.IOUring, stateOK, "polled completions work, and are not used"},
		{"not polled", uring.DiskSupport{Alignment: direct, Registered: true, PolledWhy: "not here"}, nil, uring.IOUring, stateOK, "no polled completions (not here)"},
		{"aio", uring.DiskSupport{Alignment: direct, AIO: true, NowaitRead: true, NowaitWrite: true}, nil, uring.Epoll, stateOK, "by Linux AIO"},
		{"writes", uring.DiskSupport{Alignment: direct, AIO: true, NowaitRead: true}, nil, uring.Epoll, stateOK, "buffered writes are left"},
		{"no aio", uring.DiskSupport{Alignment: direct, AIOWhy: "out of them", NowaitRead: true}, nil, uring.Epoll, stateNote, "out of them"},
		{"no direct", uring.DiskSupport{DirectWhy: "none here"}, nil, uring.IOUring, stateNote, "(none here): everything is copied to and from the page cache, and threads of the kernel wait"},
		{"no direct, no ring", uring.DiskSupport{DirectWhy: "none here"}, nil, uring.Epoll, stateNote, "and threads of the process wait"},
		{"no reads", uring.DiskSupport{DirectWhy: "none here"}, nil, uring.Epoll, stateNote, "buffered reads are left"},
		{"nothing", uring.DiskSupport{}, errors.New("not allowed"), uring.IOUring, stateNote, "not allowed"},
	} {
		if got := assessDisk("/d", c.s, c.err, c.backend); got.State != c.state || !strings.Contains(got.Found, c.found) || got.Name != "disk" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestDoctorTriesADisk(t *testing.T) {
	d := decode[diagnosis](t, ringmsgr(t, "doctor", "--json", "--cores", "1", "--backend", "epoll", "--disk", t.TempDir()).want(t, cli.OK))
	if last := d.Checks[len(d.Checks)-1]; len(d.Checks) != 13 || last.Name != "disk" || last.Found == "" {
		t.Errorf("%+v", d.Checks)
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
}

func TestDoctorPrintsTheBoundsAsJSON(t *testing.T) {
	got := decode[limitsReport](t, ringmsgr(t, "doctor", "--limits", "--json").want(t, 0)).Limits
	want := control.Config{}.Bounds()
	if len(got) != len(want) {
		t.Fatalf("%d bounds, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

func TestBoundsHaveTheirUnits(t *testing.T) {
	for want, b := range map[string]control.Bound{
		"none":     {Unit: control.UnitBytes},
		"1 MiB":    {Value: 1 << 20, Unit: control.UnitBytes},
		"64 KiB/s": {Value: 64 << 10, Unit: control.UnitRate},
		"1 000/s":  {Value: 1000, Unit: control.UnitPerSecond},
		"15m0s":    {Value: 9e11, Unit: control.UnitNanoseconds},
		"262 144":  {Value: 1 << 18, Unit: control.UnitMessages},
	} {
		if got := boundText(b); got != want {
			t.Errorf("%+v is written %q, want %q", b, got, want)
		}
	}
}
