package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// options is what the command line asks for.
type options struct {
	quick   bool
	settle  time.Duration // of --idle
	watch   time.Duration // of --idle
	storm   int           // sessions that are cut at once, instead of messages
	cores   int           // of the server, with --storm
	idle    int           // connections that do nothing, instead of messages
	growth  growth
	plot    string // directory for pictures
	figures string // directory for everything that the documents show
	json    string
	show    string
	servers []variant
	base    string
	sizes   []int
	shapes  []shape
	whats   []string // that requests do, if they are not echoed
	gcLoad  gcChoice
	pace    int            // requests per second, 0: as fast as the replies come
	beside  report.Streams // what is in the way of the loads
	secure  bool           // mode of the connections: secure, else crc
	codec   bool           // only the frame codec, no messages
	build   bool           // build the flavours that are chosen by build tags
	rounds  int
	slice   time.Duration
	warm    time.Duration
	total   time.Duration // that all cells may take; 0: as long as it needs
	args    []string
	storage storageOptions
}

// shape is a number of connections and the requests open on each.
type shape struct{ conns, depth int }

const (
	defaultRounds = 7
	defaultSlice  = 300 * time.Millisecond
	defaultWarm   = 50 * time.Millisecond
	// A quick run has fewer cells, but as many rounds: what they agree on is
	// believed.
	quickRounds = 7
	quickSlice  = 150 * time.Millisecond
	quickWarm   = 20 * time.Millisecond
	// quickTotal leaves room in the promised minute for compiling this program.
	quickTotal = 45 * time.Second
	// The same for a run with all rivals: it lasts three minutes on a machine that does
	// nothing else, and four at most.
	rivalsSlice = 200 * time.Millisecond
	rivalsTotal = 225 * time.Second
)

// preset is what a run compares if nothing is named.
type preset struct {
	servers, sizes, loads string
	slice                 time.Duration
}

// presets returns those of a usual run, and of one with --quick, --rivals and --figures.
func presets(all []variant) (usual, quick, rivals, figures preset) {
	others := ""
	for _, r := range child.Rivals() {
		others += "," + r.Name
	}
	ours := "net,epoll"
	if slices.ContainsFunc(all, func(v variant) bool { return v.name == "io_uring" }) {
		ours = "net,io_uring,epoll"
	}
	usual = preset{usualServers(all, false), "64,4KiB,64KiB,1MiB,4MiB", "1x1,64x1,16x16", defaultSlice}
	quick = preset{usualServers(all, true), "64,64KiB,1MiB", "1x1,64x1", quickSlice}
	rivals = preset{"floor+store," + ours + others, "64,4KiB,64KiB,1MiB", "64x1,16x16", rivalsSlice}
	figures = preset{"floor,floor+store," + ours + others, usual.sizes, usual.loads, defaultSlice}
	return usual, quick, rivals, figures
}

// mode is the value of --mode.
func (o *options) mode() string {
	if o.secure {
		return child.ModeSecure
	}
	return child.ModeCRC
}

// gcChoice is the value of --gc-load: cells without the load, with it, or both.
type gcChoice string

func (g *gcChoice) String() string   { return string(*g) }
func (g *gcChoice) IsBoolFlag() bool { return true }
func (g *gcChoice) Set(s string) error {
	switch s {
	case "true", "on":
		*g = "on"
	case "false", "off":
		*g = "off"
	case "both":
		*g = "both"
	default:
		return errors.New("must be on, off or both")
	}
	return nil
}

// parseOptions reads the command line. Help, if that is what it asks for, goes
// to stdout.
func parseOptions(args []string, stdout io.Writer) (options, error) {
	o := options{gcLoad: "off", args: args, settle: idleSettle, watch: idleWatch, growth: growth{settle: growthSettle}}
	all := everyVariant()
	usual, quick, rivals, figures := presets(all)
	fs := cli.NewFlags("bench")
	fs.BoolVar(&o.quick, "quick", false, "fewer loads, within a minute")
	fs.IntVar(&o.idle, "idle", 0, "measure what `n` idle connections cost each server, instead of messages")
	fs.IntVar(&o.storm, "storm", 0, "cut `n` lossless sessions at once and watch them come back, unsteered and with the owner hint")
	fs.IntVar(&o.cores, "storm-cores", stormCores, "`cores` of the server, with --storm")
	against := fs.Bool("rivals", false, "compare with other libraries, gRPC-go and netpoll: servers "+rivals.servers+", sizes "+rivals.sizes+", loads "+rivals.loads+", within four minutes; any server can also be named")
	fs.BoolVar(&o.growth.on, "growth", false, "measure what more connections, few and all of them active, and more cores cost, instead of messages")
	growthConns := fs.String("growth-conns", defaultGrowthConns, "numbers of connections, a comma `list`, with --growth")
	growthCores := fs.String("growth-cores", defaultGrowthCores, "numbers of cores of a server, a comma `list`, with --growth")
	fs.StringVar(&o.plot, "plot", "", "draw what was measured, or what --show names, in `directory`")
	fs.StringVar(&o.figures, "figures", "", "measure all that the documents show, messages, rivals and growth, into `directory`: results.json, and pictures of it")
	fs.StringVar(&o.json, "json", "", "write everything measured to `file`")
	fs.StringVar(&o.show, "show", "", "print the tables of a `file` written with --json, and measure nothing")
	servers := fs.String("servers", "", "servers to compare, a comma `list` (default "+usual.servers+", with --quick "+quick.servers+", with --growth "+growthServers(usual.servers)+")")
	fs.StringVar(&o.base, "base", "", "`server` that the ratios are relative to (default epoll if compared, else net, else the first)")
	sizes := fs.String("sizes", "", "payload sizes, a comma `list` (default "+usual.sizes+", with --quick "+quick.sizes+", with --growth 4KiB)")
	shapes := fs.String("loads", "", "connections x depth, a comma `list` (default "+usual.loads+", with --quick "+quick.loads+")")
	fs.Var(&o.gcLoad, "gc-load", "load the garbage collector in the servers: on, off or both")
	fs.IntVar(&o.pace, "pace", 0, "issue so many `requests` per second in each cell, whatever the replies do, instead of one for each reply; latencies count from when a request was due")
	beside := fs.String("beside", "", "have other connections stream large messages through the same servers meanwhile, `CONNECTIONSxSIZE` such as 8x4MiB")
	mode := fs.String("mode", child.ModeCRC, "`mode` of the connections: crc, or secure, which compares the frame codec with crypto/cipher too")
	fs.BoolVar(&o.codec, "codec", false, "compare the frame codec in secure mode with crypto/cipher, and measure no messages")
	fs.BoolVar(&o.build, "tags-build", false, "build the epoll flavour with -tags epoll, instead of choosing it at run time in the default build")
	fs.IntVar(&o.rounds, "rounds", 0, fmt.Sprintf("measured rounds per cell, %d to judge it (default %d)", report.EnoughRounds, defaultRounds))
	fs.DurationVar(&o.slice, "slice", 0, fmt.Sprintf("measured `time` per server and round (default %v, with --quick %v, with --rivals and --growth %v)", defaultSlice, quickSlice, rivalsSlice))
	onFiles := addStorageFlags(fs, &o.storage)
	rest, err := cli.Parse(fs, joinStorage(args))
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stdout, "usage: go run ./bench [flags]\n\nExample: go run ./bench --quick --sizes 64,4KiB --json results.json\n\nServers:")
		for _, v := range all {
			fmt.Fprintf(stdout, "  %-14s %s\n", v.name, v.about)
		}
		fmt.Fprintln(stdout, "\nServers of --storage:")
		for _, v := range storageVariants() {
			fmt.Fprintf(stdout, "  %-14s %s\n", v.name, v.about)
		}
		fmt.Fprintln(stdout, "\nServers of --storage kv:")
		for _, v := range kvVariants() {
			fmt.Fprintf(stdout, "  %-14s %s\n", v.name, v.about)
		}
		fmt.Fprintln(stdout, "\nFlags:")
		cli.PrintFlags(stdout, fs)
	}
	if err != nil {
		return o, err
	}
	if len(rest) > 0 {
		return o, fmt.Errorf("unexpected argument %q", rest[0])
	}
	var errs []error
	collect := func(err error) { errs = append(errs, err) }
	of := func(flag string, err error) {
		if err != nil {
			collect(fmt.Errorf("%s: %w", flag, err))
		}
	}
	of("--beside", o.setBeside(*beside))
	if o.storage.what != "" {
		of("--beside", o.onlyEchoes(o.beside.Conns > 0))
		of("--pace", o.onlyEchoes(o.pace != 0))
	}
	if o.storage.what == storageKV {
		collect(o.storage.completeKV(&o, onFiles, *servers, *sizes, *shapes, *mode))
		return o, errors.Join(errs...)
	}
	if o.storage.what != "" {
		collect(o.storage.complete(&o, onFiles, *servers, *sizes, *shapes))
		collect(o.complete())
		return o, errors.Join(errs...)
	}
	collect(onFiles.unused(&o.storage))
	chosen := usual
	switch {
	case o.figures != "":
		chosen = figures
	case *against:
		chosen = rivals
	case o.quick:
		chosen = quick
	}
	if *against && o.figures == "" && cmp.Or(*servers, *sizes, *shapes) == "" && o.rounds == 0 && o.slice == 0 {
		o.total = rivalsTotal // nothing else is asked for
	}
	growing := growthServers(chosen.servers)
	if o.figures != "" {
		growing = growthServers(usual.servers) // 10 000 connections of gRPC take gigabytes
	}
	if o.growth.on && o.figures == "" {
		chosen.servers = growing
	}
	o.servers, err = chooseServers(all, cmp.Or(*servers, chosen.servers))
	of("--servers", err)
	o.sizes, err = parseList(cmp.Or(*sizes, chosen.sizes), parseSize)
	of("--sizes", err)
	o.shapes, err = parseList(cmp.Or(*shapes, chosen.loads), parseShape)
	of("--loads", err)
	of("--beside", o.onlyEchoes(o.beside.Conns > 0))
	of("--pace", o.checkPace())
	o.growth.servers, _ = chooseServers(all, cmp.Or(*servers, growing)) // --servers has its error
	o.growth.size = growthSize
	if o.growth.on && *sizes != "" && len(o.sizes) > 0 {
		o.growth.size = o.sizes[0]
		if len(o.sizes) > 1 {
			of("--sizes", errors.New("--growth has one size"))
		}
	}
	o.growth.conns, err = parseList(*growthConns, within(1, growthMaxConns))
	of("--growth-conns", err)
	o.growth.cores, err = parseList(*growthCores, within(1, growthMaxCores))
	of("--growth-cores", err)
	if o.growth.on && !o.quick {
		chosen.slice = growthSlice
	}
	if o.storm != 0 {
		chosen.slice = stormWindow
	}
	o.slice = cmp.Or(o.slice, chosen.slice)
	if o.secure = *mode == child.ModeSecure; !o.secure && *mode != child.ModeCRC {
		collect(fmt.Errorf("--mode %q is neither crc nor secure", *mode))
	}
	collect(o.complete())
	return o, errors.Join(errs...)
}

// complete fills in what depends on other options and checks the rest.
func (o *options) complete() error {
	rounds := defaultRounds
	o.warm = defaultWarm
	if o.quick {
		rounds, o.warm, o.total = quickRounds, quickWarm, quickTotal
	}
	o.rounds = cmp.Or(o.rounds, rounds)
	o.warm = min(o.warm, o.slice)
	var errs []error
	if o.rounds < 1 || o.rounds > 1000 {
		errs = append(errs, fmt.Errorf("--rounds %d is not in 1..1000", o.rounds))
	}
	if o.idle < 0 {
		errs = append(errs, fmt.Errorf("--idle %d: want 0 or more", o.idle))
	}
	if err := writable(o.json); err != nil {
		errs = append(errs, fmt.Errorf("--json %s: %w", o.json, err))
	}
	errs = append(errs, o.completePictures())
	if o.storm < 0 || o.storm > stormMax || o.storm > 0 && (o.cores < 2 || o.cores > 64) {
		errs = append(errs, fmt.Errorf("--storm %d with --storm-cores %d is not within %d sessions and 2..64 cores", o.storm, o.cores, stormMax))
	}
	if o.slice < time.Millisecond || o.slice > time.Minute {
		errs = append(errs, fmt.Errorf("--slice %v is not in 1ms..1m", o.slice))
	}
	switch {
	case len(o.servers) == 0:
	case o.base == "" && o.has("epoll"):
		o.base = "epoll"
	case o.base == "" && o.has("net"):
		o.base = "net"
	case o.base == "":
		o.base = o.servers[0].name
	case !o.has(o.base):
		errs = append(errs, fmt.Errorf("--base %s is not among the servers", o.base))
	}
	return errors.Join(errs...)
}

// completePictures fills in what --figures and --plot stand for.
func (o *options) completePictures() error {
	for _, f := range []struct{ flag, dir string }{{"--figures", o.figures}, {"--plot", o.plot}} {
		if f.dir == "" {
			continue
		}
		if o.storm > 0 || o.idle > 0 || o.codec {
			return fmt.Errorf("%s: --storm, --idle and --codec have no pictures", f.flag)
		}
		if err := writable(filepath.Clean(f.dir)); err != nil { // it is made
			return fmt.Errorf("%s %s: %w", f.flag, f.dir, err)
		}
	}
	if o.figures != "" {
		o.growth.on = true
		o.plot, o.json = cmp.Or(o.plot, o.figures), cmp.Or(o.json, filepath.Join(o.figures, "results.json"))
	}
	return nil
}

// writable says whether there is a directory for a file, so that a run does not fail
// once it has measured everything.
func writable(file string) error {
	if file == "" {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err == nil && !dir.IsDir() {
		err = syscall.ENOTDIR
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// question is what the conclusion answers: our flavour against what a Go program
// would do without us, or else against the base. Empty if there is no such pair.
func (o *options) question() (subject, rival string) {
	for _, s := range []string{"io_uring", "epoll"} {
		for _, r := range []string{"net", o.base} {
			if s != r && o.has(s) && o.has(r) {
				return s, r
			}
		}
	}
	return "", ""
}

// has says whether a server is compared.
func (o *options) has(name string) bool {
	return slices.ContainsFunc(o.servers, func(v variant) bool { return v.name == name })
}

// cells lists the loads, without GC load first, the heaviest last.
func (o *options) cells() []report.Load {
	var gc []bool
	if o.gcLoad != "on" {
		gc = append(gc, false)
	}
	if o.gcLoad != "off" {
		gc = append(gc, true)
	}
	whats := o.whats
	if len(whats) == 0 {
		whats = []string{""}
	}
	var cells []report.Load
	for _, g := range gc {
		for _, what := range whats {
			for _, size := range o.sizes {
				for _, s := range o.shapes {
					cells = append(cells, report.Load{What: what, Size: size, Conns: s.conns, Depth: s.depth, GCLoad: g, Rate: o.pace, Beside: o.beside})
				}
			}
		}
	}
	return cells
}

// usualServers lists what is compared if nothing is named.
func usualServers(all []variant, quick bool) string {
	var names []string
	for _, v := range all {
		if !v.extra && (!quick || !v.detail) {
			names = append(names, v.name)
		}
	}
	return strings.Join(names, ",")
}

// chooseServers picks the named variants, in the order of the names.
func chooseServers(all []variant, list string) ([]variant, error) {
	return parseList(list, func(name string) (variant, error) {
		i := slices.IndexFunc(all, func(v variant) bool { return v.name == name })
		if i < 0 {
			return variant{}, fmt.Errorf("unknown server %q", name)
		}
		return all[i], nil
	})
}

// growthServers leaves out of a list what --growth does not compare unasked: what differs
// from others of the list by its protocol, or by what is not counted here.
func growthServers(list string) string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name != "floor+store" && name != "loop" && !strings.HasSuffix(name, "+v1") {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// within parses a number.
func within(least, most int) func(text string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not a number in %d..%d", text, least, most)
		}
		return n, nil
	}
}

// parseList parses the items of a comma list, which must not be empty.
func parseList[T any](list string, parse func(string) (T, error)) ([]T, error) {
	var items []T
	for _, text := range strings.Split(list, ",") {
		item, err := parse(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// maxSize bounds the payload of a message.
const maxSize = 16 << 20

// parseSize reads a payload size such as 64, 4KiB or 1MiB.
func parseSize(text string) (int, error) {
	n, err := quantity.ParseBytes(text, maxSize)
	if err == nil && n == 0 {
		err = fmt.Errorf("size %q: want at least 1", text)
	}
	return int(n), err
}

// parseShape reads connections x depth, such as 16x16.
func parseShape(text string) (shape, error) {
	conns, depth, ok := strings.Cut(text, "x")
	c, err1 := strconv.Atoi(conns)
	d, err2 := strconv.Atoi(depth)
	if !ok || err1 != nil || err2 != nil || c < 1 || c > 4096 || d < 1 || d > 1024 {
		return shape{}, fmt.Errorf("load %q is not CONNECTIONSxDEPTH within 4096x1024", text)
	}
	return shape{c, d}, nil
}
