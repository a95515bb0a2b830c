package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

func doctorCommand(e env) *cobra.Command {
	d := &doctor{}
	c := &cobra.Command{
		Use: "doctor", Short: "the features of this machine, their use, and remedies",
		Example: "  ringmsgr doctor --cores 4 --pin",
		Long: `Starts cores as the flags say, and stops them again; tries the features of the
kernel; and reports which are used, which are not and why, and the remedies.
Status 0 means that a messenger can run. With --limits it prints the bounds of a
messenger instead.` + shapes(`{"ok":true,"backend":"io_uring|epoll","fallback":"...","receive":"auto|buffers|ready",
 "receive_why":"...","cores":N,
 "checks":[{"name":"...","state":"ok|note|problem","found":"...","remedy":"..."}],
 "machine":{...}}
{"limits":[{"name":"...","value":N,"unit":"bytes|bytes/s|ns|messages|connections|peers|lines",
  "per":"...","of":"..."}]}`),
		RunE: func(*cobra.Command, []string) error { return d.run(e) },
	}
	fs := c.Flags()
	d.machineOptions.register(fs, 0)
	fs.BoolVar(&d.limits, "limits", false, "print the bounds in force, and nothing else")
	return c
}

type doctor struct {
	machineOptions
	limits bool
}

// The outcomes of a check.
const (
	stateOK      = "ok"
	stateNote    = "note"    // it works, and could be better
	stateProblem = "problem" // it cannot work
)

// check is one thing that was looked at.
type check struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// diagnosis is the JSON of doctor.
type diagnosis struct {
	OK       bool   `json:"ok"`
	Backend  string `json:"backend,omitempty"`
	Fallback string `json:"fallback,omitempty"`
	Receive  string `json:"receive,omitempty"`
	// ReceiveWhy is why it is that mode.
	ReceiveWhy string        `json:"receive_why,omitempty"`
	Cores      int           `json:"cores"`
	Checks     []check       `json:"checks"`
	Machine    uring.Machine `json:"machine"`
}

func (d *doctor) run(e env) error {
	err := d.plane(e)
	if err != nil {
		return err
	}
	if d.limits {
		return d.show(e, limitsReport{d.cfg.Bounds()})
	}
	r := examine(d.cfg.Plane).assess()
	if err = d.show(e, r); err == nil && !r.OK {
		err = cli.ErrReported
	}
	return err
}

// findings are the results of examine.
type findings struct {
	cfg     loop.Config
	machine uring.Machine

	coresErr error // why no cores run
	info     uring.Info
	receive  string
	why      string // of receive
	ringErr  error  // why no ring opens, if none does

	steering    bpf.Info
	steeringErr error
	procs       int
}

// examine tries the calls of a messenger on the machine.
func examine(cfg loop.Config) *findings {
	f := &findings{cfg: cfg, machine: uring.Probe(), procs: runtime.GOMAXPROCS(0)}
	p, err := loop.New(cfg)
	if err == nil {
		var st loop.CoreStats
		st, err = p.Core(0).Stats()
		f.info, f.receive, f.why = p.Info(), st.Receive, st.ReceiveWhy
		_ = p.Close() // this is no core
	}
	if f.coresErr = err; !f.machine.Ring {
		f.ringErr = tryRing()
	}
	f.steering, f.steeringErr = bpf.Probe()
	return f
}

func tryRing() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	drv, err := uring.Open(uring.Config{Backend: uring.IOUring, Entries: 8})
	if err != nil {
		return err
	}
	return drv.CloseDriver()
}

func (r *diagnosis) print(w io.Writer) {
	width := cli.Width
	if columns, _, ok := cli.Terminal(w); ok {
		width = columns
	}
	for _, c := range r.Checks {
		cli.Hang(w, fmt.Sprintf("%-12s %-8s ", c.Name, c.State), c.Found, 22, width)
		if c.Remedy != "" {
			cli.Hang(w, strings.Repeat(" ", 22)+"-> ", c.Remedy, 25, width)
		}
	}
	verdict := "A messenger cannot run here as asked."
	if r.OK {
		const text = "A messenger can run here: %d cores on %s, receive mode %s (%s)."
		verdict = fmt.Sprintf(text, r.Cores, r.Backend, r.Receive, r.ReceiveWhy)
	}
	fmt.Fprintln(w)
	cli.Hang(w, "", verdict, 0, width)
}

// limitsReport is the JSON of doctor --limits.
type limitsReport struct {
	Limits []control.Bound `json:"limits"`
}

func (r limitsReport) print(w io.Writer) {
	const row = "%-28s %9s  %-10s  %s\n"
	fmt.Fprintf(w, row, "SETTING", "BOUND", "FOR EACH", "OF")
	for _, b := range r.Limits {
		fmt.Fprintf(w, row, b.Name, boundText(b), b.Per, b.Of)
	}
	fmt.Fprintln(w, "\nThese are defaults of control.Config, whose fields set them; none means that nothing is bounded.")
}

func boundText(b control.Bound) string {
	if b.Value == 0 {
		return "none"
	}
	switch b.Unit {
	case "bytes":
		return cli.Bytes(b.Value)
	case "bytes/s":
		return cli.Bytes(b.Value) + "/s"
	case "1/s":
		return humanize.FormatInteger("# ###.", int(b.Value)) + "/s"
	case "ns":
		return time.Duration(b.Value).String()
	default:
		return humanize.FormatInteger("# ###.", int(b.Value))
	}
}

func setupError(err error) (cause, remedy string) {
	if se, ok := errors.AsType[*uring.SetupError](err); ok {
		return fmt.Sprintf("%s: %v: %s", se.Call, se.Errno, se.Cause), se.Remedy
	}
	return err.Error(), ""
}

// Below these values doctor has a remedy.
const (
	enoughFiles   = 4096     // descriptors; each connection takes one
	enoughMemlock = 64 << 20 // bytes, for zero-copy sends and registered buffers
	enoughBacklog = 1024     // connections that wait to be accepted
)

func (f *findings) assess() *diagnosis {
	r := &diagnosis{OK: f.coresErr == nil, Cores: f.cfg.Cores, Machine: f.machine}
	if r.OK {
		r.Backend, r.Fallback, r.Receive, r.ReceiveWhy = string(f.info.Backend), f.info.Fallback, f.receive, f.why
	}
	cores, m, somaxconn := f.cfg.Cores+2, &f.machine, f.machine.Sysctls["net.core.somaxconn"]
	backlog, err := strconv.Atoi(somaxconn)
	r.Checks = []check{
		f.engine(), f.ring(), f.features(), f.steer(), f.cpus(),
		note("scheduler", fmt.Sprintf("GOMAXPROCS is %d, wanted is %d (cores + 2)", f.procs, cores), f.procs < cores,
			fmt.Sprintf("set GOMAXPROCS=%d in programs that embed the library; this one raises it unless it is set", cores)),
		note("open files", limits(m.Files, func(n uint64) string { return fmt.Sprint(n) }), m.Files.Soft < enoughFiles,
			fmt.Sprintf("raise RLIMIT_NOFILE (ulimit -n) to %d or more: a connection takes one", enoughFiles)),
		f.memlock(),
		note("backlog", "net.core.somaxconn is "+cmp.Or(somaxconn, "unknown"), err == nil && backlog < enoughBacklog,
			fmt.Sprintf("sysctl net.core.somaxconn=%d, so that many peers can come back at once", enoughBacklog)),
		f.capabilities(),
		note("seccomp", m.Seccomp, m.Seccomp == "filter" && !m.Ring,
			"have the filter allow io_uring_setup, io_uring_enter and io_uring_register"),
	}
	return r
}

func good(name, found string) check { return check{name, stateOK, found, ""} }

// note is a check that found how it could be better, if better says so.
func note(name, found string, better bool, remedy string) check {
	if !better {
		return good(name, found)
	}
	return check{name, stateNote, found, remedy}
}

// engine: whether a messenger can run, and on which engine.
func (f *findings) engine() check {
	switch {
	case f.coresErr != nil:
		found, remedy := setupError(f.coresErr)
		if remedy == "" && f.cfg.Driver.Backend == uring.IOUring {
			remedy = "use --backend auto or epoll"
		}
		return check{"engine", stateProblem, found, remedy}
	case f.info.Fallback != "":
		return check{"engine", stateNote, "epoll, because there is no ring", ""}
	}
	return good("engine", fmt.Sprintf("%s will be used, receive mode %s (%s)", f.info.Backend, f.receive, f.why))
}

func (f *findings) ring() check {
	if f.machine.Ring {
		return good("io_uring", "kernel "+f.machine.Kernel+" gives us a ring")
	}
	found, remedy := f.machine.RingWhy, ""
	if f.ringErr != nil {
		found, remedy = setupError(f.ringErr)
	}
	return check{"io_uring", stateNote, cmp.Or(found, "not in this program"), remedy}
}

func (f *findings) features() check {
	if !f.machine.Ring {
		return good("features", "none without a ring")
	}
	var missing []string
	for _, ft := range f.machine.Features {
		if !ft.Have {
			missing = append(missing, fmt.Sprintf("%s (Linux %s): %s", ft.Name, ft.Since, ft.Why))
		}
	}
	all := len(f.machine.Features)
	found := fmt.Sprintf("%d of %d of the ring's", all-len(missing), all)
	if len(missing) > 0 {
		found += "; not " + strings.Join(missing, ", ")
	}
	return note("features", found, len(missing) > 0, "a newer kernel; nothing that a messenger needs is missing")
}

// steer: the library works without, unsteered.
func (f *findings) steer() check {
	var refused *bpf.LoadError
	switch {
	case errors.As(f.steeringErr, &refused):
		return check{"steering", stateNote, fmt.Sprintf("missing %s: %v", refused.Missing, refused.Err), refused.Remedy}
	case f.steeringErr != nil:
		return check{"steering", stateNote, f.steeringErr.Error(), ""}
	case !f.steering.Migration:
		return good("steering", "the eBPF program loads, without moving connections off a listener that closes (Linux 5.14)")
	}
	return good("steering", "the eBPF program loads")
}

func (f *findings) cpus() check {
	n, remedy := len(f.machine.CPUs), ""
	switch {
	case f.cfg.Cores > n:
		remedy = fmt.Sprintf("--cores %d at most: more only take turns", max(n, 1))
	case f.cfg.Pin && f.cfg.Cores == n:
		remedy = "with --pin leave a CPU to everything else: a pinned core cannot move out of its way"
	}
	return note("CPUs", fmt.Sprintf("%d usable %v, %d cores", n, f.machine.CPUs, f.cfg.Cores), remedy != "", remedy)
}

func (f *findings) memlock() check {
	found, remedy := limits(f.machine.Memlock, func(n uint64) string { return cli.Bytes(int64(n)) }), ""
	locks := slices.ContainsFunc(f.machine.Capabilities, func(c uring.Capability) bool { return c.Name == "CAP_IPC_LOCK" && c.Have })
	switch {
	case locks:
		found += ", and CAP_IPC_LOCK lifts it"
	case f.machine.Memlock.Soft < enoughMemlock:
		remedy = "raise RLIMIT_MEMLOCK (ulimit -l) if you want zero-copy sends, or files with direct I/O: " +
			"beyond it each request pins its memory anew"
	}
	return note("memlock", found, remedy != "", remedy)
}

func (f *findings) capabilities() check {
	var have, lack []string
	for _, c := range f.machine.Capabilities {
		if c.Have {
			have = append(have, c.Name)
		} else {
			lack = append(lack, fmt.Sprintf("%s (%s)", c.Name, c.For))
		}
	}
	return note("capabilities", cmp.Or(strings.Join(have, ", "), "none that matter"), len(lack) > 0,
		"only if you want it: "+strings.Join(lack, ", "))
}

// limits writes the soft limit, and the hard limit if it differs.
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
