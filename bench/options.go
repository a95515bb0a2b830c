package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/original"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// options are the choices of the command line.
type options struct {
	quick       bool
	growth      bool
	storage     bool
	original    bool
	releases    []original.Release // the releases that were found
	storageDir  string
	storageSize int64 // bytes of the file
	plot        string
	json        string
	show        string
	servers     []variant
	base        string
	whats       []string // the operations on the file; empty: requests are echoed
	sizes       []int
	shapes      []shape
	gcLoad      bool
	pace        int    // requests per second, 0: as fast as the replies come
	mode        string // of the connections
	rounds      int
	slice       time.Duration
	warm        time.Duration
	total       time.Duration // that all cells may take; 0: as long as they need
	args        []string
}

// shape is a number of connections, the requests open on each, and how many of the
// connections are active; 0: all.
type shape struct{ conns, depth, active int }

const (
	defaultRounds = 7
	defaultWarm   = 50 * time.Millisecond
	quickWarm     = 20 * time.Millisecond
	paceMax       = 10_000_000
	maxSize       = 16 << 20 // bytes of payload
	maxConns      = 20000
	maxDepth      = 1024
	maxCores      = 64
	maxFile       = 1 << 40 // bytes
)

// preset is the comparison of a run, as far as the command line names no other.
type preset struct {
	servers, sizes, loads string
	rounds                int
	slice                 time.Duration
	total                 time.Duration // 0: no bound
	file                  string        // size of the file of storage servers
	whats                 []string
}

// preset returns the preset that the flags choose. A quick run has fewer cells, but as many
// rounds: the summary judges rounds that agree.
func (o *options) preset(rivals bool) preset {
	ours := "net,io_uring,epoll"
	if !slices.ContainsFunc(variants(), func(v variant) bool { return v.name == "io_uring" }) {
		ours = "net,epoll"
	}
	p := preset{
		servers: usualServers(o.quick), sizes: "64,4KiB,64KiB,1MiB,4MiB", loads: "1x1,64x1,16x16",
		rounds: defaultRounds, slice: 300 * time.Millisecond,
	}
	switch {
	case o.original:
		p.servers = names(originalVariants(o.releases))
		p.loads, p.whats = "1x1,4x64,4x16", originalWhats
		p.rounds, p.slice = report.EnoughRounds, 500*time.Millisecond
		if o.quick {
			p.sizes, p.loads, p.whats = "64,64KiB,1MiB", "4x16", originalWhats[:2]
		}
		return p
	case o.storage && o.quick:
		return preset{
			servers: names(storageVariants()), sizes: "4KiB", loads: "16x16", rounds: report.EnoughRounds,
			slice: 100 * time.Millisecond, total: 50 * time.Second, file: "256MiB", whats: storageWhats,
		}
	case o.storage:
		return preset{
			servers: names(storageVariants()), sizes: "4KiB,64KiB", loads: "1x1,64x1,16x16",
			rounds: report.EnoughRounds, slice: 120 * time.Millisecond, total: 350 * time.Second,
			file: "1GiB", whats: storageWhats,
		}
	case o.growth:
		p.servers, p.sizes, p.loads = "floor,"+ours, "4KiB", "1x1,10x1,100x1,1000x1:10,1000x1,10000x1:100,10000x1"
		p.slice = 200 * time.Millisecond
	case rivals:
		p.servers, p.sizes, p.loads = "floor+store,"+ours, "64,4KiB,64KiB,1MiB", "64x1,16x16"
		p.slice, p.total = 200*time.Millisecond, 225*time.Second
	case o.quick:
		p.sizes, p.loads, p.slice = "64,64KiB,1MiB", "1x1,64x1", 150*time.Millisecond
	}
	if o.quick {
		p.total = 45 * time.Second // it leaves room in the promised minute for compiling this program
	}
	if rivals {
		for _, r := range child.Rivals() {
			p.servers += "," + r.Name
		}
	}
	return p
}

// command is the program as its library has it. do gets the options of a right call.
func command(args []string, do func(ctx context.Context, o *options) error) *cobra.Command {
	o := &options{args: args}
	c := &cobra.Command{
		Use: "bench", Example: "  go run ./bench --quick --sizes 64,4KiB --json results.json",
		Long: "Compares the messenger with what else one could use.\n\nServers:\n" + serverList(),
	}
	fs := c.Flags()
	var servers string
	var rivals bool
	fs.BoolVar(&o.quick, "quick", false, "fewer loads, within a minute")
	fs.BoolVar(&rivals, "rivals", false, "compare with other libraries, gRPC-go and netpoll, too, within four minutes")
	fs.BoolVar(&o.growth, "growth", false,
		"loads of up to 10 000 connections, few and all of them active, and the memory of an idle connection")
	fs.BoolVar(&o.storage, "storage", false, "measure servers that read and durably write a file, instead of echoes")
	fs.BoolVar(&o.original, "original", false, "compare with the messenger of Ceph, by ceph_perf_msgr_server and ceph_perf_msgr_client")
	cli.Var(fs, &o.storageDir, "storage-dir", "",
		"`directory` of that file, on the disk that is meant (default /var/tmp)",
		func(dir string) (string, error) { return dir, writable(filepath.Join(dir, "file")) })
	cli.Var(fs, &o.storageSize, "storage-size", "", "`size` of that file (default 1GiB, with --quick 256MiB)",
		func(text string) (int64, error) { return cli.ParseBytes(text, maxFile) })
	cli.Var(fs, &o.plot, "plot", "", "draw the results, or those of --show, in `directory`",
		func(dir string) (string, error) { return dir, writable(filepath.Clean(dir)) }) // the run makes the directory
	cli.Var(fs, &o.json, "json", "", "write everything measured to `file`",
		func(file string) (string, error) { return file, writable(file) })
	fs.StringVar(&o.show, "show", "", "print the tables of a `file` written with --json, and measure nothing")
	fs.StringVar(&servers, "servers", "", "servers to compare, a comma `list`; NAME@N is a server on N cores")
	fs.StringVar(&o.base, "base", "",
		"`server` that the ratios are relative to (default epoll, with --storage ring, else net, else the first)")
	cli.Var(fs, &o.sizes, "sizes", "", "payload sizes, a comma `list`", cli.List(parseSize))
	cli.Var(fs, &o.shapes, "loads", "",
		"connections x depth, a comma `list`; 1000x1:10 has 10 of 1000 connections active", cli.List(parseShape))
	fs.BoolVar(&o.gcLoad, "gc-load", false, "load the garbage collector in the servers")
	cli.IntVar(fs, &o.pace, "pace", 0, 0, paceMax,
		"issue so many `requests` per second in each cell, whatever the replies do; latencies count from "+
			"when a request was due")
	cli.ChoiceVar(fs, &o.mode, "mode", child.ModeCRC, "`mode` of the connections: crc or secure",
		child.ModeCRC, child.ModeSecure)
	cli.IntVar(fs, &o.rounds, "rounds", 0, 0, 1000,
		fmt.Sprintf("measured `rounds` per cell, %d to judge it", report.EnoughRounds))
	cli.DurationVar(fs, &o.slice, "slice", 0, time.Millisecond, "measured `time` per server and round")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.complete(fs, servers, rivals); err != nil {
			return &cli.UsageError{Err: err}
		}
		return do(c.Context(), o)
	}
	return c
}

// complete checks the options that the flags have set, and chooses all others.
func (o *options) complete(fs *pflag.FlagSet, servers string, rivals bool) (err error) {
	var errs problems
	if o.original {
		o.releases, err = original.Find(os.Getenv("PATH"))
		errs.of("--original", err)
	}
	chosen := o.preset(rivals)
	if !o.quick && slices.ContainsFunc([]string{"servers", "sizes", "loads", "rounds", "slice"}, fs.Changed) {
		chosen.total = 0 // the user has set the length of the run
	}
	given := fs.Changed("storage-size") || fs.Changed("storage-dir")
	texts := map[string]string{"sizes": chosen.sizes, "loads": chosen.loads, "storage-size": chosen.file}
	for name, text := range texts {
		if text != "" && !fs.Changed(name) {
			errs.of("--"+name, fs.Set(name, text))
		}
	}
	o.rounds, o.slice, o.total, o.whats = cmp.Or(o.rounds, chosen.rounds), cmp.Or(o.slice, chosen.slice), chosen.total, chosen.whats
	o.warm = defaultWarm
	if o.quick || o.storage {
		o.warm = quickWarm
	}
	o.warm = min(o.warm, o.slice)
	o.servers, err = cli.List(o.parseServer)(cmp.Or(servers, chosen.servers))
	errs.of("--servers", err)
	if o.storage {
		o.checkStorage(&errs)
	} else if given {
		errs.of("--storage-dir, --storage-size", errors.New("are nothing without --storage"))
	}
	o.check(&errs)
	return errors.Join(errs...)
}

// serverList is the part of the help about the servers.
func serverList() string {
	var list []string
	for _, v := range append(everyVariant(), storageVariants()...) {
		about := v.about
		if v.storage != nil {
			about = "(--storage) " + about
		}
		list = append(list, fmt.Sprintf("  %-14s %s", v.name, about))
	}
	return strings.Join(list, "\n")
}

// problems collects everything that is wrong with a command line.
type problems []error

// of adds an error and names the flag.
func (p *problems) of(flag string, err error) {
	if err != nil {
		*p = append(*p, fmt.Errorf("%s: %w", flag, err))
	}
}

// check fills in the base and reports options that exclude each other.
func (o *options) check(errs *problems) {
	for flag, given := range map[string]bool{
		"--mode": o.secure(), "--growth": o.growth, "--pace": o.pace > 0,
		"--gc-load": o.gcLoad && o.original, "--storage": o.storage && o.original,
	} {
		if given && (o.storage || o.original) {
			errs.of(flag, errors.New("is for echoed messages, not for --storage or --original"))
		}
	}
	if own := slices.IndexFunc(o.servers, func(v variant) bool { return v.own }); o.pace > 0 && own >= 0 {
		errs.of("--pace", fmt.Errorf("server %s has a client of its own, which cannot do that", o.servers[own].name))
	}
	at := func(name string) int {
		return slices.IndexFunc(o.servers, func(v variant) bool { return v.name == name })
	}
	for i, v := range o.servers {
		if at(v.name) < i {
			errs.of("--servers", fmt.Errorf("%s is named twice", v.name))
		}
	}
	has := func(name string) bool { return at(name) >= 0 }
	if o.base != "" && !has(o.base) {
		errs.of("--base "+o.base, errors.New("is not among the servers"))
	}
	usual := []string{"epoll", "net"}
	switch {
	case o.original:
		usual = []string{"io_uring", "epoll"}
	case o.storage:
		usual = []string{"ring", "epoll"}
	}
	for _, v := range o.servers {
		usual = append(usual, v.name)
	}
	if i := slices.IndexFunc(usual, has); o.base == "" && i >= 0 {
		o.base = usual[i]
	}
}

// checkStorage chooses the directory of the file, and refuses loads that storage servers cannot have.
func (o *options) checkStorage(errs *problems) {
	if o.storageDir == "" {
		o.storageDir = "/var/tmp"
		if _, err := os.Stat(o.storageDir); errors.Is(err, fs.ErrNotExist) {
			o.storageDir = os.TempDir()
		}
	}
	for _, n := range o.sizes {
		if n%blocks.Size != 0 || n > blocks.MaxLen {
			errs.of(fmt.Sprintf("--sizes %d", n), fmt.Errorf("want multiples of %d up to %d", blocks.Size, blocks.MaxLen))
		}
		for _, s := range o.shapes {
			if need := int64(n) * int64(s.conns*s.depth); o.storageSize < need {
				errs.of("--storage-size", fmt.Errorf("%d has no room for the %d bytes that one load has under way", o.storageSize, need))
			}
			if s.active != 0 {
				errs.of("--loads", errors.New("all connections to a storage server are active"))
			}
		}
	}
}

func (o *options) secure() bool { return o.mode == child.ModeSecure }

// writable says whether there is a directory for a file, so that a run does not fail
// once it has measured everything.
func writable(file string) error {
	dir, err := os.Stat(filepath.Dir(file))
	if err == nil && !dir.IsDir() {
		err = syscall.ENOTDIR
	}
	return cli.Cause(err)
}

// cells lists the loads, the heaviest of each operation last.
func (o *options) cells() []report.Load {
	whats := o.whats
	if len(whats) == 0 {
		whats = []string{""}
	}
	var cells []report.Load
	for _, what := range whats {
		for _, size := range o.sizes {
			for _, s := range o.shapes {
				cells = append(cells, report.Load{
					What: what, Clients: strings.HasPrefix(what, asClient), Size: size,
					Conns: s.conns, Depth: s.depth, Active: s.active, GCLoad: o.gcLoad, Rate: o.pace,
				})
			}
		}
	}
	return cells
}

// parseServer finds a server, NAME or NAME@CORES.
func (o *options) parseServer(text string) (variant, error) {
	all := everyVariant()
	if o.storage {
		all = storageVariants()
	}
	if o.original {
		all = originalVariants(o.releases)
	}
	name, cores, several := strings.Cut(text, "@")
	v, err := find(all, name)
	if err != nil || !several {
		return v, err
	}
	n, err := strconv.Atoi(cores)
	switch {
	case err != nil || n < 1 || n > maxCores:
		return variant{}, fmt.Errorf("server %q: the cores are not in 1..%d", text, maxCores)
	case v.raw || v.storage != nil:
		return variant{}, fmt.Errorf("server %q: %s has one core", text, name)
	}
	v.name, v.config.Cores = text, n
	return v, nil
}

// parseSize reads a payload size, for example 64, 4KiB or 1MiB.
func parseSize(text string) (int, error) {
	n, err := cli.ParseBytes(text, maxSize)
	if err == nil && n == 0 {
		err = fmt.Errorf("size %q: want at least 1", text)
	}
	return int(n), err
}

// parseShape reads connections x depth, for example 16x16, or 1000x1:10.
func parseShape(text string) (shape, error) {
	load, active, some := strings.Cut(text, ":")
	conns, depth, ok := strings.Cut(load, "x")
	c, err1 := strconv.Atoi(conns)
	d, err2 := strconv.Atoi(depth)
	s := shape{conns: c, depth: d}
	if some {
		var err error
		if s.active, err = strconv.Atoi(active); err != nil || s.active < 1 || s.active > c {
			ok = false
		}
	}
	if !ok || err1 != nil || err2 != nil || c < 1 || c > maxConns || d < 1 || d > maxDepth {
		return shape{}, fmt.Errorf("load %q is not CONNECTIONSxDEPTH or CONNECTIONSxDEPTH:ACTIVE within %dx%d", text, maxConns, maxDepth)
	}
	return s, nil
}
