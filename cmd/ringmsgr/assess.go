package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
	"github.com/ringmsgr/ringmsgr/uring"
)

// What is enough for most: below it, doctor says so.
const (
	enoughFiles   = 4096     // descriptors; each connection takes one
	enoughMemlock = 64 << 20 // bytes, for zero-copy sends and registered buffers
	enoughBacklog = 1024     // connections that wait to be accepted
	sharpSlack    = "1"      // ns
)

// assess makes a diagnosis of what was found.
func (f *findings) assess() *diagnosis {
	r := &diagnosis{OK: f.coresErr == nil, Cores: f.cfg.Cores, Machine: f.machine}
	if r.OK {
		r.Backend, r.Fallback, r.Receive, r.ReceiveWhy = string(f.info.Backend), f.info.Fallback, f.receive, f.why
	}
	r.Checks = []check{
		f.engine(), f.ring(), f.features(), f.steer(), f.cpus(), f.scheduler(),
		f.files(), f.memlock(), f.backlog(), f.timers(), f.capabilities(), f.seccomp(),
	}
	return r
}

// engine: can a messenger run, and on what.
func (f *findings) engine() check {
	c := check{Name: "engine", State: stateOK}
	switch {
	case f.coresErr != nil:
		c.State = stateProblem
		c.Found, c.Remedy = setupError(f.coresErr)
		if c.Remedy == "" && f.cfg.Driver.Backend == uring.IOUring {
			c.Remedy = "use --backend auto or epoll"
		}
	case f.info.Fallback != "":
		c.State, c.Found = stateNote, "epoll, because there is no ring"
	default:
		c.Found = fmt.Sprintf("%s will be used, receive mode %s (%s)", f.info.Backend, f.receive, f.why)
	}
	return c
}

func (f *findings) ring() check {
	c := check{Name: "io_uring", State: stateOK, Found: "kernel " + f.machine.Kernel + " gives us a ring"}
	if f.machine.Ring {
		return c
	}
	c.State, c.Found = stateNote, f.machine.RingWhy
	if f.ringErr != nil {
		c.Found, c.Remedy = setupError(f.ringErr)
	}
	if c.Found == "" {
		c.Found = "not in this program"
	}
	return c
}

func (f *findings) features() check {
	c := check{Name: "features", State: stateOK, Found: "none without a ring"}
	if !f.machine.Ring {
		return c
	}
	have, missing := 0, []string{}
	for _, ft := range f.machine.Features {
		if ft.Have {
			have++
			continue
		}
		missing = append(missing, fmt.Sprintf("%s (Linux %s): %s", ft.Name, ft.Since, ft.Why))
	}
	c.Found = fmt.Sprintf("%d of %d of the ring's", have, len(f.machine.Features))
	if len(missing) > 0 {
		c.State = stateNote
		c.Found += "; not " + strings.Join(missing, ", ")
		c.Remedy = "a newer kernel; nothing that a messenger needs is missing"
	}
	return c
}

// steer: the library works without, unsteered.
func (f *findings) steer() check {
	if f.steeringErr == nil {
		found := "the eBPF program loads"
		if !f.steering.Migration {
			found += ", without moving connections off a listener that closes (Linux 5.14)"
		}
		return check{Name: "steering", State: stateOK, Found: found}
	}
	c := check{Name: "steering", State: stateNote, Found: f.steeringErr.Error()}
	var le *bpf.LoadError
	if errors.As(f.steeringErr, &le) {
		c.Found, c.Remedy = fmt.Sprintf("missing %s: %v", le.Missing, le.Err), le.Remedy
	}
	return c
}

func (f *findings) cpus() check {
	n := len(f.machine.CPUs)
	c := check{Name: "CPUs", State: stateOK, Found: fmt.Sprintf("%d usable %v, %d cores", n, f.machine.CPUs, f.cfg.Cores)}
	switch {
	case f.cfg.Cores > n:
		c.State, c.Remedy = stateNote, fmt.Sprintf("--cores %d at most: more only take turns", max(n, 1))
	case f.cfg.Pin && f.cfg.Cores == n:
		c.State, c.Remedy = stateNote, "with --pin leave a CPU to everything else: a pinned core cannot move out of its way"
	}
	return c
}

func (f *findings) scheduler() check {
	want := f.cfg.Cores + 2
	c := check{Name: "scheduler", State: stateOK, Found: fmt.Sprintf("GOMAXPROCS is %d, wanted is %d (cores + 2)", f.procs, want)}
	if f.procs < want {
		c.State = stateNote
		c.Remedy = fmt.Sprintf("set GOMAXPROCS=%d in programs that embed the library; this one raises it unless it is set", want)
	}
	return c
}

func (f *findings) files() check {
	c := check{Name: "open files", State: stateOK, Found: limits(f.machine.Files, func(n uint64) string { return fmt.Sprint(n) })}
	if f.machine.Files.Soft < enoughFiles {
		c.State, c.Remedy = stateNote, fmt.Sprintf("raise RLIMIT_NOFILE (ulimit -n) to %d or more: a connection takes one", enoughFiles)
	}
	return c
}

func (f *findings) memlock() check {
	c := check{Name: "memlock", State: stateOK, Found: limits(f.machine.Memlock, func(n uint64) string { return quantity.Bytes(int64(n)) })}
	locks := slices.ContainsFunc(f.machine.Capabilities, func(c uring.Capability) bool { return c.Name == "CAP_IPC_LOCK" && c.Have })
	switch {
	case locks:
		c.Found += ", and CAP_IPC_LOCK lifts it"
	case f.machine.Memlock.Soft < enoughMemlock:
		c.State, c.Remedy = stateNote, "raise RLIMIT_MEMLOCK (ulimit -l) if you want zero-copy sends, or files with direct I/O: beyond it each request pins its memory anew"
	}
	return c
}

func (f *findings) backlog() check {
	value := f.machine.Sysctls["net.core.somaxconn"]
	c := check{Name: "backlog", State: stateOK, Found: "net.core.somaxconn is " + orUnknown(value)}
	n := 0
	if _, err := fmt.Sscan(value, &n); err == nil && n < enoughBacklog {
		c.State, c.Remedy = stateNote, fmt.Sprintf("sysctl net.core.somaxconn=%d, so that many peers can come back at once", enoughBacklog)
	}
	return c
}

// timers: cores set their own slack, so that this is about everything else.
func (f *findings) timers() check {
	c := check{Name: "timers", State: stateOK, Found: "the main thread's slack is not known"}
	if f.slack != "" {
		c.Found = "the main thread's slack is " + f.slack + " ns"
	}
	if f.slack != sharpSlack {
		c.Found += ", cores set theirs to 1 ns"
	}
	return c
}

func (f *findings) capabilities() check {
	c := check{Name: "capabilities", State: stateOK}
	var have, lack []string
	for _, cp := range f.machine.Capabilities {
		if cp.Have {
			have = append(have, cp.Name)
		} else {
			lack = append(lack, fmt.Sprintf("%s (%s)", cp.Name, cp.For))
		}
	}
	c.Found = "none that matter"
	if len(have) > 0 {
		c.Found = strings.Join(have, ", ")
	}
	if len(lack) > 0 {
		c.State, c.Remedy = stateNote, "only if you want it: "+strings.Join(lack, ", ")
	}
	return c
}

func (f *findings) seccomp() check {
	c := check{Name: "seccomp", State: stateOK, Found: f.machine.Seccomp}
	if f.machine.Seccomp == "filter" && !f.machine.Ring {
		c.State, c.Remedy = stateNote, "have the filter allow io_uring_setup, io_uring_enter and io_uring_register"
	}
	return c
}

// limits writes what is allowed and what may be asked for.
func limits(l uring.Limit, number func(uint64) string) string {
	text := func(n uint64) string {
		if n == math.MaxUint64 {
			return "unlimited"
		}
		return number(n)
	}
	if l.Soft == l.Hard {
		return text(l.Soft)
	}
	return fmt.Sprintf("%s, may be raised to %s", text(l.Soft), text(l.Hard))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
