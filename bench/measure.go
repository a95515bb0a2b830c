package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
)

// callTimeout bounds one answer of a child beyond the time that it measures.
const callTimeout = 60 * time.Second

// target is a server process under test.
type target struct {
	variant
	child  *proc.Child
	client *proc.Child // its own; nil: that of the runner
	pid    int
	hello  child.Hello
}

// runner measures all cells.
type runner struct {
	opt       options
	file      report.File
	spawner   *proc.Spawner
	client    *proc.Child
	streams   *proc.Child // the client of what runs beside the loads, nil: nothing does
	targets   []*target
	counter   counterFunc // nil if system calls cannot be counted from outside
	why       error       // why not
	askWithin askFunc
	opening   func(t *target, l report.Load) any // asks a client to connect; nil: for echoes
	plan      plan
	cores     int  // of each server; 0: as usual
	apart     bool // each server has a client of its own
	progress  *progress
	stderr    io.Writer
}

// askFunc asks a child, with a bound on its answer.
type askFunc func(ctx context.Context, limit time.Duration, c *proc.Child, request, result any) error

// newRunner starts nothing yet.
func newRunner(opt options, stderr io.Writer) *runner {
	if _, ok := stderr.(*os.File); !ok {
		stderr = &lockedWriter{w: stderr} // the children write too
	}
	r := &runner{opt: opt, stderr: stderr, progress: newProgress(stderr), plan: newPlan(opt, time.Now)}
	r.file = report.File{Started: time.Now(), Machine: machine(), Command: opt.args, Base: opt.base, Mode: opt.mode()}
	r.askWithin = func(ctx context.Context, limit time.Duration, c *proc.Child, request, result any) error {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("no answer in time"))
		defer cancel()
		return c.Call(ctx, request, result)
	}
	return r
}

// ask asks a child for what takes no longer than a slice.
func (r *runner) ask(ctx context.Context, c *proc.Child, request, result any) error {
	return r.askWithin(ctx, callTimeout+r.opt.slice, c, request, result)
}

// measure runs the benchmark and writes its results.
func measure(ctx context.Context, opt options, stdout, stderr io.Writer) (err error) {
	if opt.growth.on {
		if err := opt.growth.check(); err != nil {
			return err
		}
	}
	r := newRunner(opt, stderr)
	defer r.stop()
	r.file.Width = columns(stdout)
	r.file.Subject, r.file.Rival = opt.question()
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := r.file.WriteHead(stdout); err != nil {
		return err
	}
	failure := r.measureCells(ctx, stdout)
	r.stop()
	if failure == nil && opt.growth.on {
		failure = r.grow(ctx)
	}
	if failure == nil && opt.secure {
		failure = r.measureCodec(ctx, stdout)
	}
	if len(r.file.Cells) > 0 {
		if err := r.file.WriteSummary(stdout); err != nil {
			return err
		}
	}
	return errors.Join(failure, r.save())
}

// start starts all processes.
func (r *runner) start(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if r.counter, r.why = openCounter(); r.why != nil {
		r.note("system calls are counted by the servers that count their own: %v", r.why)
	}
	flavours := newFlavours(r.progress)
	defer flavours.remove()
	r.spawner = proc.NewSpawner()
	var hello struct{}
	r.client, err = r.spawner.Start(ctx, "client", exe, []string{child.Command, "client"}, r.stderr, &hello)
	if err != nil {
		return err
	}
	if r.opt.beside.Conns > 0 {
		if r.streams, err = r.spawner.Start(ctx, "client of the streams", exe, []string{child.Command, "client"}, r.stderr, &hello); err != nil {
			return err
		}
	}
	for _, v := range r.opt.servers {
		program, err := r.program(ctx, flavours, v, exe)
		if err != nil {
			return err
		}
		t := &target{variant: v}
		r.progress.say("starting server %s", v.name)
		t.child, err = r.spawner.Start(ctx, v.name, program, []string{child.Command, "server", v.name, r.opt.mode(), strconv.Itoa(r.cores)}, r.stderr, &t.hello)
		if err != nil {
			return err
		}
		t.pid = t.child.PID()
		r.targets = append(r.targets, t)
		r.file.Servers = append(r.file.Servers, report.Server{Name: v.name, About: v.about, Settings: t.hello.Settings})
		if v.own || r.apart {
			args := []string{child.Command, "client"}
			if !v.own {
				program = exe
			} else {
				args = append(args, v.name)
			}
			if t.client, err = r.spawner.Start(ctx, "client of "+v.name, program, args, r.stderr, &hello); err != nil {
				return err
			}
		}
	}
	return nil
}

// program returns what a server is a part of.
func (r *runner) program(ctx context.Context, f *flavours, v variant, exe string) (string, error) {
	program := exe
	var err error
	switch {
	case v.rival:
		if program, err = f.module(ctx, rivalModule); err != nil {
			err = fmt.Errorf("server %s: %w", v.name, err)
		}
	case r.opt.build && v.tags != "":
		if program, err = f.build(ctx, v.tags); err != nil {
			r.note("%s is the default build, its own could not be made: %v", v.name, err)
			program, err = exe, nil
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return program, err
}

// clientOf returns who loads t.
func (r *runner) clientOf(t *target) *proc.Child {
	if t.client != nil {
		return t.client
	}
	return r.client
}

// note adds a remark to the report and shows it at once.
func (r *runner) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.file.Notes = append(r.file.Notes, text)
	r.progress.warn(text)
}

// stop ends all processes. It may be called twice.
func (r *runner) stop() {
	r.progress.clear()
	for _, c := range []*proc.Child{r.client, r.streams} {
		if c != nil {
			c.Stop()
		}
	}
	for _, t := range r.targets {
		if t.client != nil {
			t.client.Stop()
		}
		t.child.Stop()
	}
	if r.spawner != nil {
		r.spawner.Close()
	}
	r.client, r.streams, r.targets = nil, nil, nil
}

// measureCells measures one cell after the other and prints each when it is
// complete.
func (r *runner) measureCells(ctx context.Context, stdout io.Writer) error {
	cells := r.opt.cells()
	for i, l := range cells {
		if !r.plan.begin() {
			r.note("no time was left for %d of %d cells, from %v on", len(cells)-i, len(cells), l)
			return nil
		}
		r.progress.cell(i+1, len(cells), l)
		cell, err := r.measureCell(ctx, l)
		if err != nil {
			return fmt.Errorf("%v: %w", l, err)
		}
		r.progress.clear()
		if err := r.file.WriteCell(stdout, cell); err != nil {
			return err
		}
		r.file.Cells = append(r.file.Cells, *cell)
	}
	return nil
}

// measureCell connects the client to every server and loads them in turn.
func (r *runner) measureCell(ctx context.Context, l report.Load) (*report.Cell, error) {
	cell := &report.Cell{Load: l, Results: make([]report.Result, len(r.targets))}
	for i, t := range r.targets {
		cell.Results[i] = report.Result{Server: t.name, Latency: latency.New()}
		if err := r.open(ctx, t, l); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	if err := r.rounds(ctx, cell); err != nil {
		return nil, err
	}
	if err := r.closeAll(ctx); err != nil {
		return nil, err
	}
	cell.Compute(r.opt.base)
	return cell, nil
}

// open connects the client of a server to it.
func (r *runner) open(ctx context.Context, t *target, l report.Load) error {
	limit := callTimeout + time.Duration(l.Conns)*openEach
	if r.opening != nil {
		return r.askWithin(ctx, limit, r.clientOf(t), r.opening(t, l), nil)
	}
	o := load.Options{
		Addr: t.hello.Addr, Nonce: t.hello.Nonce, PID: t.pid, Raw: t.raw, Secure: r.opt.secure && !t.raw && !t.msgr1, Msgr1: t.msgr1,
		Conns: l.Conns, Depth: l.Depth, Size: l.Size,
	}
	if err := r.askWithin(ctx, limit, r.clientOf(t), child.ClientRequest{Server: t.name, Open: &o}, nil); err != nil {
		return err
	}
	return r.openStreams(ctx, t, o, l.Beside)
}

// closeAll ends the connections of all clients.
func (r *runner) closeAll(ctx context.Context) error {
	for _, t := range r.targets {
		if err := r.ask(ctx, r.clientOf(t), child.ClientRequest{Server: t.name, Close: true}, nil); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := r.closeStreams(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// rounds measures all rounds of a cell. System calls are counted in slices of
// their own, because counting costs time: before the first round, where they
// warm everything up as well, and after the last.
func (r *runner) rounds(ctx context.Context, cell *report.Cell) error {
	if err := r.countRound(ctx, cell); err != nil {
		return err
	}
	took := time.Duration(0)
	for round := range r.opt.rounds {
		if round > 0 && !r.plan.another(round, took) {
			break
		}
		began := time.Now()
		r.progress.round(round+1, r.opt.rounds)
		for place := range r.targets {
			i := place
			if round%2 == 1 {
				i = len(r.targets) - 1 - place
			}
			res, streams, err := r.loadBeside(ctx, r.targets[i], cell.Load, r.plan.slice)
			if err != nil {
				return fmt.Errorf("%s: %w", r.targets[i].name, err)
			}
			s := sample(res, cell.Load.Size)
			s.BesideMBPerS = streams
			s.Round, s.Order = round+1, place+1
			cell.Results[i].Samples = append(cell.Results[i].Samples, s)
			cell.Results[i].Latency.Add(res.Latency)
		}
		took = time.Since(began)
	}
	if r.opt.quick {
		return nil
	}
	return r.countRound(ctx, cell)
}

// load loads one server for one slice.
func (r *runner) load(ctx context.Context, t *target, l report.Load, s load.Slice) (res load.Result, err error) {
	s.Rate = float64(l.Rate)
	err = r.withGCLoad(ctx, t, l, func() error {
		res, err = r.run(ctx, t, s)
		return err
	})
	return res, err
}

// withGCLoad does something while the load on the garbage collector of a
// server is on, if l has it.
func (r *runner) withGCLoad(ctx context.Context, t *target, l report.Load, do func() error) error {
	if !l.GCLoad {
		return do()
	}
	on, off := true, false
	if err := r.ask(ctx, t.child, child.ServerRequest{GCLoad: &on}, nil); err != nil {
		return err
	}
	err := do()
	// Off in any case; what failed before tells more.
	if e := r.ask(ctx, t.child, child.ServerRequest{GCLoad: &off}, nil); err == nil {
		err = e
	}
	return err
}

// run has the client load one server for one slice.
func (r *runner) run(ctx context.Context, t *target, s load.Slice) (load.Result, error) {
	return r.runOn(ctx, r.clientOf(t), t, s)
}

// runOn has one of its clients load a server for one slice.
func (r *runner) runOn(ctx context.Context, client *proc.Child, t *target, s load.Slice) (load.Result, error) {
	var res load.Result
	err := r.askWithin(ctx, callTimeout+s.Window, client, child.ClientRequest{Server: t.name, Run: &s}, &res)
	// Every request is answered in the end. A window that only counts is not
	// made longer until something came; one that is timed must not be empty.
	timed := s.WindowMax > s.Window
	if err == nil && (res.Latency == nil || res.Total == 0 || timed && res.Bytes == 0) {
		err = fmt.Errorf("nothing was received within %v", res.Window)
	}
	return res, err
}

// sample turns what the client measured into the figures of the report.
func sample(res load.Result, size int) report.Sample {
	n, window := float64(res.Bytes)/float64(res.PerReply), res.Window.Seconds()
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return report.Sample{
		Messages: n, WindowS: window, Replies: res.Latency.Count(),
		MessagesPerS: n / window, MBPerS: n * float64(size) / window / 1e6,
		P50US: us(res.Latency.Quantile(0.5)), P99US: us(res.Latency.Quantile(0.99)), P999US: us(res.Latency.Quantile(0.999)),
		ServerCPUUS: us(res.ServerCPU) / n, ClientCPUUS: us(res.ClientCPU) / n,
		UnsteadyStart: !res.Steady,
	}
}
