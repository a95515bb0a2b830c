package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/uring"
)

func doctorCommand(e env) cli.Command {
	fs := cli.NewFlags("doctor")
	d := &doctor{}
	d.machineOptions.register(fs, 0)
	fs.BoolVar(&d.limits, "limits", false, "print the bounds in force, and nothing else")
	return cli.Command{
		Name: "doctor", Help: "the features of this machine, their use, and remedies", Flags: fs,
		Example: "  ringmsgr doctor --cores 4 --pin",
		Text: `Starts cores as the flags say, and stops them again; tries the features of the
kernel; and reports which are used, which are not and why, and the remedies.
Status 0 means that a messenger can run. With --limits it prints the bounds of a
messenger instead.` + shapes(`{"ok":true,"backend":"io_uring|epoll","fallback":"...","receive":"auto|buffers|ready",
 "receive_why":"...","cores":N,
 "checks":[{"name":"...","state":"ok|note|problem","found":"...","remedy":"..."}],
 "machine":{...}}
{"limits":[{"name":"...","value":N,"unit":"bytes|bytes/s|ns|messages|connections|peers|lines",
  "per":"...","of":"..."}]}`),
		Run: func(context.Context, []string) error { return d.run(e) },
	}
}

type doctor struct {
	machineOptions
	limits bool
}

// checkState is the outcome of one check.
type checkState string

const (
	stateOK      checkState = "ok"
	stateNote    checkState = "note"    // it works, and could be better
	stateProblem checkState = "problem" // it cannot work
)

// check is one thing that was looked at.
type check struct {
	Name   string     `json:"name"`
	State  checkState `json:"state"`
	Found  string     `json:"found"`
	Remedy string     `json:"remedy,omitempty"`
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
		bounds := d.cfg.Bounds()
		if d.json {
			return cli.WriteJSON(e.stdout, limitsReport{bounds})
		}
		return printLimits(e.stdout, bounds)
	}
	r := examine(d.cfg.Plane).assess()
	if d.json {
		err = cli.WriteJSON(e.stdout, r)
	} else {
		r.print(e)
	}
	if err == nil && !r.OK {
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
	f.tryCores()
	if !f.machine.Ring {
		f.ringErr = tryRing()
	}
	f.steering, f.steeringErr = bpf.Probe()
	return f
}

// tryCores starts and stops the cores that were asked for.
func (f *findings) tryCores() {
	p, err := loop.New(f.cfg)
	if err != nil {
		f.coresErr = err
		return
	}
	defer func() { _ = p.Close() }() // this is no core
	st, err := p.Core(0).Stats()
	f.info, f.receive, f.why, f.coresErr = p.Info(), st.Receive, st.ReceiveWhy, err
}

// tryRing returns why no ring can be had.
func tryRing() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	drv, err := uring.Open(uring.Config{Backend: uring.IOUring, Entries: 8})
	if err != nil {
		return err
	}
	return drv.CloseDriver()
}

func (r *diagnosis) print(e env) {
	width := cli.Width
	if columns, _, ok := terminalSize(e.stdout); ok {
		width = columns
	}
	for _, c := range r.Checks {
		cli.Hang(e.stdout, fmt.Sprintf("%-12s %-8s ", c.Name, c.State), c.Found, 22, width)
		if c.Remedy != "" {
			cli.Hang(e.stdout, strings.Repeat(" ", 22)+"-> ", c.Remedy, 25, width)
		}
	}
	verdict := "A messenger cannot run here as asked."
	if r.OK {
		const text = "A messenger can run here: %d cores on %s, receive mode %s (%s)."
		verdict = fmt.Sprintf(text, r.Cores, r.Backend, r.Receive, r.ReceiveWhy)
	}
	fmt.Fprintln(e.stdout)
	cli.Hang(e.stdout, "", verdict, 0, width)
}

// limitsReport is the JSON of doctor --limits.
type limitsReport struct {
	Limits []control.Bound `json:"limits"`
}

// printLimits writes one line for each bound.
func printLimits(w io.Writer, bounds []control.Bound) error {
	const row = "%-25s %12s  %-10s  %s\n"
	fmt.Fprintf(w, row, "SETTING", "BOUND", "FOR EACH", "OF")
	for _, b := range bounds {
		fmt.Fprintf(w, row, b.Name, boundText(b), b.Per, b.Of)
	}
	_, err := fmt.Fprintln(w, "\nThese are defaults of control.Config, whose fields set them; none means that nothing is bounded.")
	return err
}

// boundText is the value of a bound with its unit.
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

// setupError is the cause and the remedy of a refused ring.
func setupError(err error) (cause, remedy string) {
	var se *uring.SetupError
	if errors.As(err, &se) {
		return fmt.Sprintf("%s: %v: %s", se.Call, se.Errno, se.Cause), se.Remedy
	}
	return err.Error(), ""
}
