package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
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
	if _, ok := stderr.(*os.File); !ok {
		stderr = &lockedWriter{w: stderr} // the children write too
	}
	r := &runner{opt: opt, stderr: stderr, progress: newProgress(stderr), plan: newPlan(opt, time.Now)}
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%.2f\t\n", res.Server, humanize.Comma(int64(res.Conns)),
			humanize.IBytes(uint64(max(res.BytesPerConn, 0))), res.WakesPerSec, res.CPUPerSec)
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
	open := clientRequest{Server: t.name, Open: &load.Options{
		Addr: t.hello.Addr, Nonce: t.hello.Nonce, PID: t.child.PID(), Secure: r.opt.secure,
		Conns: r.opt.idle, Depth: 1, Size: 64,
	}}
	call, cancel := context.WithTimeout(ctx, callTimeout+time.Duration(r.opt.idle)*5*time.Millisecond)
	defer cancel()
	if err := r.client.Call(call, open, nil); err != nil {
		return res, err
	}
	after, err := r.resting(ctx, t)
	if err != nil {
		return res, err
	}
	if err := pause(ctx, r.opt.watch); err != nil {
		return res, err
	}
	end, err := observe(t.child.PID())
	if err != nil {
		return res, err
	}
	res.BytesPerConn = (after.rss - before.rss) / int64(r.opt.idle)
	res.WakesPerSec = float64(end.wakes-after.wakes) / r.opt.watch.Seconds()
	res.CPUPerSec = (end.cpu - after.cpu).Seconds() * 1000 / r.opt.watch.Seconds()
	return res, r.client.Call(call, clientRequest{Server: t.name, Close: true}, nil)
}

// resting has the server return what it does not need, and looks at it.
func (r *runner) resting(ctx context.Context, t *target) (observation, error) {
	if err := pause(ctx, r.opt.settle); err != nil {
		return observation{}, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.child.Call(call, serverRequest{Trim: true}, nil); err != nil {
		return observation{}, err
	}
	if err := pause(ctx, r.opt.settle/4); err != nil {
		return observation{}, err
	}
	return observe(t.child.PID())
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
	rss   int64
	wakes int64 // voluntary context switches of all threads
	cpu   time.Duration
}

func observe(pid int) (observation, error) {
	var o observation
	root := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(root, "status"))
	if err != nil {
		return o, err
	}
	o.rss = 1024 * statusField(string(status), "VmRSS:")
	tasks, err := filepath.Glob(filepath.Join(root, "task", "*", "status"))
	if err != nil {
		return o, err
	}
	for _, task := range tasks {
		if status, err = os.ReadFile(task); err == nil { // a thread may have ended
			o.wakes += statusField(string(status), "voluntary_ctxt_switches:")
		}
	}
	// The kernel's name for the CPU clock of another process.
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return o, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	o.cpu = time.Duration(ts.Nano())
	return o, nil
}

// statusField is the number behind a name in a status file.
func statusField(status, name string) int64 {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}
