package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
)

const (
	defaultGrowthConns = "1,10,100,1000,10000"
	defaultGrowthCores = "1,2,3,4"
	growthMaxConns     = 20000
	growthMaxCores     = 64
	// growthSize is the payload: a block, which is small for the kernel and not for memory.
	growthSize  = 4 << 10
	growthSlice = 200 * time.Millisecond
	// growthPerOpen is by how much each open request makes a window longer.
	growthPerOpen = 100 * time.Microsecond
	// growthSparse is the share of the connections that are active in every other cell: one
	// in so many, and at least one.
	growthSparse = 100
	// growthMemoryFrom is from how many connections on memory is shared out among them: with
	// fewer, the heap of the process is all that is seen.
	growthMemoryFrom = 100
	// growthSettle is how long what the handshakes left behind comes to rest.
	growthSettle = time.Second
	// The load on several cores: it must keep them busy, and lie on each of them.
	growthCoresConns = 64
	growthCoresDepth = 16
	// descriptorReserve is what a process needs besides its connections.
	descriptorReserve = 100
	// openEach bounds the opening of a connection among many.
	openEach = 5 * time.Millisecond
)

// errDescriptors says that the system allows too few.
var errDescriptors = errors.New("too few descriptors")

// growth is what --growth asks for.
type growth struct {
	on      bool
	servers []variant
	conns   []int
	cores   []int
	size    int // bytes of payload
	settle  time.Duration
}

// check says whether the processes may have as many descriptors as they need.
func (g *growth) check() error {
	if err := enoughDescriptors(slices.Max(g.conns)); err != nil {
		return fmt.Errorf("--growth-conns: %w", err)
	}
	return nil
}

// enoughDescriptors says whether a process of this system can have so many connections.
// The servers and each client of --growth are processes of their own, which raise what
// they may have to the hard limit.
func enoughDescriptors(conns int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of descriptors: %w", err)
	}
	if need := uint64(conns + descriptorReserve); limit.Max < need {
		return fmt.Errorf("%w: %d connections take %d in each process, and the hard limit is %d: raise that (ulimit -Hn), or ask for fewer",
			errDescriptors, conns, need, limit.Max)
	}
	return nil
}

// measureGrowth measures only that.
func measureGrowth(ctx context.Context, opt options, stdout, stderr io.Writer) error {
	if err := opt.growth.check(); err != nil {
		return err
	}
	r := newRunner(opt, stderr)
	r.file.Width = columns(stdout)
	failure := r.grow(ctx)
	r.progress.clear()
	if r.file.Growth.Empty() {
		return failure
	}
	return errors.Join(failure, r.file.WriteTable(stdout), r.save())
}

// grow measures what more connections and more cores cost, and adds it to the file.
func (r *runner) grow(ctx context.Context) error {
	g := &report.Growth{Size: r.opt.growth.size}
	r.file.Growth = g
	if err := r.growConns(ctx, g); err != nil {
		return err
	}
	return r.growCores(ctx, g)
}

// growConns measures all numbers of connections with one set of servers. Each server has
// a client of its own, so that as many connections as a process can have are open to
// all of them at the same time.
func (r *runner) growConns(ctx context.Context, g *report.Growth) error {
	set := r.set(r.opt.growth.servers, 0)
	defer set.stop()
	if err := set.start(ctx); err != nil {
		return err
	}
	if len(r.file.Servers) == 0 {
		r.file.Servers = set.file.Servers
	}
	for _, n := range r.opt.growth.conns {
		r.progress.say("growth: %d connections to each of %d servers", n, len(set.targets))
		if err := set.growTo(ctx, g, n); err != nil {
			return fmt.Errorf("%d connections: %w", n, err)
		}
	}
	return nil
}

// set is a runner that starts servers for itself, each with a client of its own and on so
// many cores.
func (r *runner) set(servers []variant, cores int) *runner {
	opt := r.opt
	opt.servers = servers
	s := newRunner(opt, r.stderr)
	s.cores, s.apart = cores, true
	return s
}

// growTo measures n connections: idle, a few of them active, and all.
func (r *runner) growTo(ctx context.Context, g *report.Growth, n int) error {
	const depth = 1
	shared := n >= growthMemoryFrom // memory is measured
	var before, idle, busy []int64
	var err error
	if shared {
		if before, err = r.memoryAtRest(ctx); err != nil {
			return err
		}
	}
	if err := r.openAll(ctx, report.Load{Size: g.Size, Conns: n, Depth: depth}); err != nil {
		return err
	}
	if shared {
		if idle, err = r.memoryAtRest(ctx); err != nil {
			return err
		}
	}
	for _, active := range slices.Compact([]int{max(1, n/growthSparse), n}) {
		cell := &report.Cell{Load: report.Load{Size: g.Size, Conns: n, Active: active, Depth: depth}}
		if err := paired(ctx, r.opt.rounds, []*group{{r, cell}}); err != nil {
			return err
		}
		cell.Compute(r.opt.base)
		g.Cells = append(g.Cells, *cell)
	}
	if shared {
		if busy, err = r.memory(); err != nil {
			return err
		}
		m := report.GrowthMemory{Conns: n}
		for i, t := range r.targets {
			m.Results = append(m.Results, report.MemoryResult{
				Server: t.name, Idle: (idle[i] - before[i]) / int64(n), Busy: (busy[i] - before[i]) / int64(n),
			})
		}
		g.Memory = append(g.Memory, m)
	}
	return r.closeAll(ctx)
}

// growCores measures one load on servers that have more and more cores, all of them at
// the same time.
func (r *runner) growCores(ctx context.Context, g *report.Growth) error {
	servers := slices.DeleteFunc(slices.Clone(r.opt.growth.servers), func(v variant) bool { return v.raw }) // those are one thread
	if len(servers) == 0 {
		return nil
	}
	l := report.Load{Size: g.Size, Conns: min(growthCoresConns, slices.Max(r.opt.growth.conns)), Depth: growthCoresDepth}
	var groups []*group
	for _, cores := range r.opt.growth.cores {
		set := r.set(servers, cores)
		defer set.stop()
		if err := set.start(ctx); err != nil {
			return err
		}
		if err := set.openAll(ctx, l); err != nil {
			return fmt.Errorf("%d cores: %w", cores, err)
		}
		groups = append(groups, &group{set, &report.Cell{Load: l}})
	}
	if cpus := r.file.Machine.Cores; slices.Max(r.opt.growth.cores) > cpus {
		r.note("servers with more cores than the %d CPUs of this machine, which the clients use, too, share them: their CPU per message tells, their messages/s do not", cpus)
	}
	r.progress.say("growth: 1 to %d cores", slices.Max(r.opt.growth.cores))
	if err := paired(ctx, r.opt.rounds, groups); err != nil {
		return err
	}
	g.CoresLoad = l
	for i, cores := range r.opt.growth.cores {
		g.Cores = append(g.Cores, report.GrowthCores{Cores: cores, Results: groups[i].cell.Results})
	}
	g.Compute()
	return nil
}

// group is a set of servers and what is measured on them.
type group struct {
	r    *runner
	cell *report.Cell
}

// paired measures some rounds of all servers of all groups, in alternating order.
func paired(ctx context.Context, rounds int, groups []*group) error {
	type place struct {
		*group
		target int
	}
	var places []place
	for _, g := range groups {
		for i, t := range g.r.targets {
			g.cell.Results = append(g.cell.Results, report.Result{Server: t.name, Latency: latency.New()})
			places = append(places, place{g, i})
		}
	}
	for round := range rounds {
		for order, p := range places {
			res, err := p.r.load(ctx, p.r.targets[p.target], p.cell.Load, p.r.growthSlice(p.cell.Load))
			if err != nil {
				return fmt.Errorf("%s: %w", p.r.targets[p.target].name, err)
			}
			s := sample(res, p.cell.Load.Size)
			s.Round, s.Order = round+1, order+1
			to := &p.cell.Results[p.target]
			to.Samples = append(to.Samples, s)
			to.Latency.Add(res.Latency)
		}
		slices.Reverse(places)
	}
	return nil
}

// growthSlice is one slice of a load. With many requests open, server and client take
// turns at them: a window is so long that it sees several.
func (r *runner) growthSlice(l report.Load) load.Slice {
	s := r.plan.slice
	s.Active = l.Active
	more := time.Duration(cmp.Or(l.Active, l.Conns)*l.Depth) * growthPerOpen
	s.Window += more
	s.WindowMax += more
	return s
}

// openAll connects every client to its server.
func (r *runner) openAll(ctx context.Context, l report.Load) error {
	for _, t := range r.targets {
		if err := r.open(ctx, t, l); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// memoryAtRest has all servers return what they do not need, and reads what they have.
func (r *runner) memoryAtRest(ctx context.Context) ([]int64, error) {
	if err := pause(ctx, r.opt.growth.settle); err != nil {
		return nil, err
	}
	for _, t := range r.targets {
		if err := r.ask(ctx, t.child, child.ServerRequest{Trim: true}, nil); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, r.opt.growth.settle/4); err != nil {
		return nil, err
	}
	return r.memory()
}

// memory reads the resident memory of all servers.
func (r *runner) memory() ([]int64, error) {
	all := make([]int64, len(r.targets))
	for i, t := range r.targets {
		o, err := observe(t.pid)
		if err != nil {
			return nil, err
		}
		all[i] = o.rss
	}
	return all, nil
}
