package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/procstat"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// Defaults: settle lets what the handshakes started come to rest, watch is how
// long the idle process is watched.
const (
	idleSettle = 2 * time.Second
	idleWatch  = 5 * time.Second
)

// idleResult is what many idle connections cost one server.
type idleResult struct {
	Server       string  `json:"server"`
	Conns        int     `json:"conns"`
	BytesPerConn int64   `json:"bytes_per_conn"` // resident memory of the process; the kernel's own is not in it
	WakesPerSec  float64 `json:"wakes_per_s"`    // of all its threads, nothing being sent
	CPUPerSec    float64 `json:"cpu_ms_per_s"`
}

// measureIdle opens opt.idle connections to each server, and watches what
// they cost while nothing is sent.
func measureIdle(ctx context.Context, opt options, stdout, stderr io.Writer) error {
	if err := enoughDescriptors(opt.idle); err != nil {
		return fmt.Errorf("--idle: %w", err)
	}
	r := newRunner(opt, stderr)
	defer r.stop()
	if err := r.start(ctx); err != nil {
		return err
	}
	var results []idleResult
	for _, t := range r.targets {
		if t.raw {
			continue
		}
		r.progress.say("opening %d connections to %s", opt.idle, t.name)
		res, err := r.idle(ctx, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		results = append(results, res)
	}
	r.progress.clear()
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "server\tconnections\tmemory each\twake-ups/s\tCPU ms/s\t")
	for _, res := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%.2f\t\n", res.Server, quantity.Count(float64(res.Conns)),
			quantity.Bytes(res.BytesPerConn), res.WakesPerSec, res.CPUPerSec)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if opt.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(opt.json, append(text, '\n'), 0o644)
}

func (r *runner) idle(ctx context.Context, t *target) (idleResult, error) {
	res := idleResult{Server: t.name, Conns: r.opt.idle}
	before, err := r.resting(ctx, t)
	if err != nil {
		return res, err
	}
	if err := r.open(ctx, t, report.Load{Conns: r.opt.idle, Depth: 1, Size: 64}); err != nil {
		return res, err
	}
	after, err := r.resting(ctx, t)
	if err != nil {
		return res, err
	}
	if err := pause(ctx, r.opt.watch); err != nil {
		return res, err
	}
	end, err := observe(t.pid)
	if err != nil {
		return res, err
	}
	res.BytesPerConn = (after.rss - before.rss) / int64(r.opt.idle)
	res.WakesPerSec = float64(end.wakes-after.wakes) / r.opt.watch.Seconds()
	res.CPUPerSec = (end.cpu - after.cpu).Seconds() * 1000 / r.opt.watch.Seconds()
	return res, r.ask(ctx, r.clientOf(t), child.ClientRequest{Server: t.name, Close: true}, nil)
}

// resting has the server return what it does not need, and looks at it.
func (r *runner) resting(ctx context.Context, t *target) (observation, error) {
	if err := pause(ctx, r.opt.settle); err != nil {
		return observation{}, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.child.Call(call, child.ServerRequest{Trim: true}, nil); err != nil {
		return observation{}, err
	}
	if err := pause(ctx, r.opt.settle/4); err != nil {
		return observation{}, err
	}
	return observe(t.pid)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// observation is what the kernel says of a process.
type observation struct {
	rss   int64 // bytes of resident memory
	wakes int64 // of all threads
	cpu   time.Duration
}

func observe(pid int) (o observation, err error) {
	memory, err := procstat.ReadMemory(pid)
	if err != nil {
		return o, err
	}
	o.rss = memory.Resident
	if o.wakes, err = procstat.ReadWakes(pid); err != nil {
		return o, err
	}
	o.cpu, err = procstat.ReadCPU(pid)
	return o, err
}
