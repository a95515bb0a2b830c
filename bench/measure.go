package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
	"github.com/ringmsgr/ringmsgr/bench/internal/syscount"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// callTimeout bounds one answer of a child beyond the time that it measures.
const callTimeout = 60 * time.Second

// target is a server process under test.
type target struct {
	variant
	child  *proc.Child
	client *proc.Child // its own; nil: that of the runner
	what   string      // the operation that it takes part in; empty: all
	pid    int
	hello  child.Hello
}

// runner measures all cells.
type runner struct {
	opt       options
	file      report.File
	client    *proc.Child
	targets   []*target
	counter   func(pid int) (callCounter, error) // nil if system calls cannot be counted from outside
	askWithin askFunc
	disk      *storage.File // of storage servers; nil: there are none
	plan      plan
	progress  *progress
	stderr    io.Writer
	restarts  int // of clients that hung at their start
}

// askFunc calls a method of a child, with a bound on its answer.
type askFunc func(ctx context.Context, limit time.Duration, c *proc.Child, method string, arg, result any) error

// newRunner starts no process yet.
func newRunner(opt options, stderr io.Writer) *runner {
	r := &runner{opt: opt, stderr: stderr, progress: &progress{w: stderr}, plan: newPlan(opt, time.Now)}
	if _, ok := stderr.(*os.File); !ok {
		r.stderr = r.progress // a pipe would copy the output of the children
	}
	r.file = report.File{Started: time.Now(), Machine: machine(), Command: opt.args, Base: opt.base, Mode: opt.mode}
	r.askWithin = func(ctx context.Context, limit time.Duration, c *proc.Child, method string, arg, result any) error {
		ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("no answer in time"))
		defer cancel()
		return c.Call(ctx, method, arg, result)
	}
	return r
}

// ask calls a method of a child that takes no longer than a slice.
func (r *runner) ask(ctx context.Context, c *proc.Child, method string, arg, result any) error {
	return r.askWithin(ctx, callTimeout+r.opt.slice, c, method, arg, result)
}

func measure(ctx context.Context, opt options, stdout, stderr io.Writer) (err error) {
	r := newRunner(opt, stderr)
	defer r.stop()
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := r.file.WriteHead(stdout); err != nil {
		return err
	}
	failure := r.measureCells(ctx, stdout)
	if r.restarts > 0 {
		r.note("the client of Ceph was started again %d times: it hung at its start, or aborted at its end", r.restarts)
	}
	r.stop()
	if len(r.file.Cells) > 0 {
		if err := r.file.WriteSummary(stdout); err != nil {
			return err
		}
	}
	return errors.Join(failure, r.save())
}

func (r *runner) start(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	most := 0
	for _, s := range r.opt.shapes {
		most = max(most, s.conns)
	}
	if err := enoughDescriptors(most); err != nil {
		return fmt.Errorf("--loads: %w", err)
	}
	if source, err := syscount.Open(); err == nil {
		r.counter = func(pid int) (callCounter, error) { return source.Start(pid) }
		r.note("system calls are counted by the %s", syscount.Method)
	} else {
		r.note("%v", err)
		r.note("system calls are shown for the servers that count their own")
	}
	spec := child.Spec{Secure: r.opt.secure()}
	if r.opt.storage {
		if err := r.makeFile(); err != nil {
			return err
		}
		file := r.disk.Config()
		spec.File = &file
	}
	modules := modules{progress: r.progress}
	defer modules.remove()
	if r.client, err = r.startClient(ctx, "client", exe, ""); err != nil {
		return err
	}
	for _, v := range r.opt.servers {
		if r.opt.original {
			r.progress.say("starting %s", v.name)
			if err := r.startOriginals(ctx, exe, v); err != nil {
				return err
			}
			continue
		}
		program := exe
		if v.rival {
			if program, err = modules.build(ctx, rivalModule); err != nil {
				return fmt.Errorf("server %s: %w", v.name, err)
			}
		}
		t := &target{variant: v}
		r.progress.say("starting server %s", v.name)
		spec.Name, _, _ = strings.Cut(v.name, "@")
		spec.Cores = v.config.Cores
		if t.child, err = proc.Start(ctx, v.name, program, spec.Args(), r.stderr, &t.hello); err != nil {
			return err
		}
		t.pid = t.child.PID()
		r.targets = append(r.targets, t)
		r.file.Servers = append(r.file.Servers, report.Server{Name: v.name, About: v.about, Settings: t.hello.Settings})
		switch {
		case v.own:
			t.client, err = r.startClient(ctx, "client of "+v.name, program, spec.Name)
		case r.opt.growth: // one process may not have the descriptors for the connections of all
			t.client, err = r.startClient(ctx, "client of "+v.name, exe, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) startClient(ctx context.Context, name, program, server string) (*proc.Child, error) {
	return proc.Start(ctx, name, program, child.Spec{Client: true, Name: server}.Args(), r.stderr, nil)
}

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
	r.progress.say("bench: note: %s", text)
}

// stop ends all processes. It may be called twice.
func (r *runner) stop() {
	if r.client != nil {
		r.client.Stop()
	}
	for _, t := range r.targets {
		if t.client != nil {
			t.client.Stop()
		}
		t.child.Stop()
	}
	r.client, r.targets = nil, nil
	if r.disk != nil {
		r.disk.Close()
		r.disk = nil
	}
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
		if err := r.file.WriteCell(stdout, cell); err != nil {
			return err
		}
		r.file.Cells = append(r.file.Cells, *cell)
	}
	return nil
}

// measureCell connects the clients to every server and loads them in turn.
func (r *runner) measureCell(ctx context.Context, l report.Load) (*report.Cell, error) {
	targets := r.in(l)
	cell := &report.Cell{Load: l, Results: make([]report.Result, len(targets))}
	var before []int64
	var err error
	if r.weighs(l) {
		if before, err = r.memoryAtRest(ctx); err != nil {
			return nil, err
		}
	}
	for i, t := range targets {
		cell.Results[i] = report.Result{Server: t.name, Latency: cli.NewHistogram()}
		if err := r.open(ctx, t, l); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	if r.weighs(l) {
		open, err := r.memoryAtRest(ctx)
		if err != nil {
			return nil, err
		}
		weigh(cell, before, open)
	}
	if err := r.cacheFile(l.What, false); err != nil {
		return nil, err
	}
	if err := r.rounds(ctx, cell); err != nil {
		return nil, err
	}
	for _, t := range targets {
		if err := r.ask(ctx, r.clientOf(t), "Close", t.name, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	cell.Compute(r.opt.base)
	return cell, nil
}

// open connects the client of a server to it.
func (r *runner) open(ctx context.Context, t *target, l report.Load) error {
	o := load.Options{
		Addr: t.hello.Addr, Nonce: t.hello.Nonce, PID: t.pid, Raw: t.raw,
		Secure: r.opt.secure() && !t.raw && !t.msgr1, Msgr1: t.msgr1,
		Conns: l.Conns, Depth: l.Depth, Size: l.Size,
	}
	if t.storage != nil {
		r.storageRequest(l.What, &o)
	}
	request := child.Opening{Server: t.name, With: o}
	return r.askWithin(ctx, callTimeout+time.Duration(l.Conns)*openEach, r.clientOf(t), "Open", request, nil)
}

// rounds measures all rounds of a cell. System calls are counted in slices of
// their own, because counting costs time: before the first round, where they
// warm everything up as well, and after the last.
func (r *runner) rounds(ctx context.Context, cell *report.Cell) error {
	if err := r.countRound(ctx, cell); err != nil {
		return err
	}
	took, targets := time.Duration(0), r.in(cell.Load)
	for round := range r.opt.rounds {
		if round > 0 && !r.plan.another(round, took) {
			break
		}
		began := time.Now()
		for place := range targets {
			i := place
			if round%2 == 1 {
				i = len(targets) - 1 - place
			}
			res, err := r.load(ctx, targets[i], cell.Load, r.plan.slice)
			if err != nil {
				return fmt.Errorf("%s: %w", targets[i].name, err)
			}
			s := sample(res, cell.Load.Size)
			s.Round, s.Order = round+1, place+1
			cell.Results[i].Samples = append(cell.Results[i].Samples, s)
			cell.Results[i].Latency.Add(res.Latency)
		}
		took = time.Since(began)
	}
	if r.opt.quick || r.opt.original { // their starts take long
		return nil
	}
	return r.countRound(ctx, cell)
}

// load loads one server for one slice of a load.
func (r *runner) load(ctx context.Context, t *target, l report.Load, s load.Slice) (res load.Result, err error) {
	if err := r.cacheFile(l.What, true); err != nil {
		return res, err
	}
	s.Rate, s.Active = float64(l.Rate), l.Active
	err = r.withGCLoad(ctx, t, l, func() error {
		res, err = r.run(ctx, t, s)
		return err
	})
	return res, err
}

// withGCLoad calls do while the load on the garbage collector of a server is on, if l has it.
func (r *runner) withGCLoad(ctx context.Context, t *target, l report.Load, do func() error) error {
	if !l.GCLoad {
		return do()
	}
	if err := r.ask(ctx, t.child, "GCLoad", true, nil); err != nil {
		return err
	}
	return cmp.Or(do(), r.ask(ctx, t.child, "GCLoad", false, nil)) // in any case; an earlier error tells more
}

// run has its client load a server for one slice.
func (r *runner) run(ctx context.Context, t *target, s load.Slice) (load.Result, error) {
	var res load.Result
	err := r.askWithin(ctx, callTimeout+s.Window, r.clientOf(t), "Run", child.Slice{Server: t.name, Slice: s}, &res)
	r.restarts += res.Restarts
	// Every request is answered in the end. A window that only counts does not grow once a
	// reply has come; a timed window must not be empty.
	timed := s.WindowMax > s.Window
	if err == nil && (res.Latency == nil || res.Total == 0 || timed && res.Bytes == 0) {
		err = fmt.Errorf("nothing was received within %v", res.Window)
	}
	return res, err
}

// sample turns the measurement of a client into figures of the report.
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

// extendMax bounds the warm-up, until every open request was answered once, and the growth of
// the window for as many replies.
const (
	extendMax   = 5 * time.Second
	quickExtend = 1500 * time.Millisecond
)

// plan divides the time of a run among its cells. When time is short it leaves out the last
// cells: a cell has always enough rounds for a verdict, and slices of a useful length.
type plan struct {
	slice    load.Slice
	servers  int
	now      func() time.Time
	deadline time.Time     // of the run; zero: none
	left     []report.Load // cells not yet begun
	cellEnd  time.Time     // when the share of the current cell is used up
}

func newPlan(o options, now func() time.Time) plan {
	p := plan{
		slice:   load.Slice{Warm: o.warm, WarmMax: extendMax, Window: o.slice, WindowMax: o.slice + extendMax},
		servers: len(o.servers), now: now, left: o.cells(),
	}
	if o.total > 0 {
		p.deadline = now().Add(o.total)
	}
	if o.quick {
		p.slice.WarmMax, p.slice.WindowMax = quickExtend, 2*o.slice
	}
	return p
}

// begin starts the next cell. It returns false if not enough time is left for it.
func (p *plan) begin() bool {
	if p.deadline.IsZero() {
		return true
	}
	left := p.deadline.Sub(p.now())
	// One more round counts system calls.
	if left < (1+report.EnoughRounds)*p.round(p.left[0]) {
		return false
	}
	var sum time.Duration
	for _, l := range p.left {
		sum += p.need(l)
	}
	share := float64(p.need(p.left[0])) / float64(sum)
	p.cellEnd = p.now().Add(time.Duration(float64(left) * share))
	p.left = p.left[1:]
	return true
}

// another reports whether there is time for one more round in this cell, after done rounds, of
// which the last took so long. A cell that is slower than estimated takes the time of enough
// rounds from later cells.
func (p *plan) another(done int, took time.Duration) bool {
	end := p.cellEnd
	if done < report.EnoughRounds {
		end = p.deadline
	}
	return p.deadline.IsZero() || !p.now().Add(took).After(end)
}

// round estimates a round of all servers.
func (p *plan) round(l report.Load) time.Duration { return time.Duration(p.servers) * p.need(l) }

// need estimates a slice: the open requests have to go through once before the window begins,
// at about 1 GB/s, and as much is under way when it ends.
func (p *plan) need(l report.Load) time.Duration {
	open := time.Duration(l.Size) * time.Duration(l.Conns*l.Depth) // at 1 ns per byte
	need := p.slice.Warm + p.slice.Window + min(open, p.slice.WarmMax)
	if l.GCLoad {
		need += 300 * time.Millisecond // two collections around the slice
	}
	return need
}
