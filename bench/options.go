package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

// options is what the command line asks for.
type options struct {
	quick   bool
	settle  time.Duration // of --idle
	watch   time.Duration // of --idle
	storm   int           // sessions that are cut at once, instead of messages
	cores   int           // of the server, with --storm
	idle    int           // connections that do nothing, instead of messages
	json    string
	show    string
	servers []variant
	base    string
	sizes   []int
	shapes  []shape
	gcLoad  gcChoice
	secure  bool // mode of the connections: secure, else crc
	codec   bool // only the frame codec, no messages
	build   bool // build the flavours that are chosen by build tags
	rounds  int
	slice   time.Duration
	warm    time.Duration
	args    []string
}

// shape is a number of connections and the requests open on each.
type shape struct{ conns, depth int }

const (
	defaultRounds = 7
	defaultSlice  = 300 * time.Millisecond
	defaultWarm   = 50 * time.Millisecond
	quickRounds   = 3
	quickSlice    = 100 * time.Millisecond
	quickWarm     = 20 * time.Millisecond
	// quickTotal leaves room in the promised minute for compiling this program.
	quickTotal = 45 * time.Second
)

// Values of --mode.
const (
	modeCRC    = "crc"
	modeSecure = "secure"
)

// mode is the value of --mode.
func (o *options) mode() string {
	if o.secure {
		return modeSecure
	}
	return modeCRC
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

// parseOptions reads the command line. Usage goes to stderr.
func parseOptions(args []string, stderr io.Writer) (options, error) {
	o := options{gcLoad: "off", args: args, settle: idleSettle, watch: idleWatch}
	all := variants()
	var names []string
	for _, v := range all {
		if !v.extra {
			names = append(names, v.name)
		}
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: go run ./bench [flags]\n\nExample: go run ./bench --quick --sizes 64,4KiB --json results.json\n\nServers:")
		for _, v := range all {
			fmt.Fprintf(stderr, "  %-14s %s\n", v.name, v.about)
		}
		fmt.Fprintln(stderr, "\nFlags:")
		fs.PrintDefaults()
	}
	fs.BoolVar(&o.quick, "quick", false, "coarse figures within a minute")
	fs.IntVar(&o.idle, "idle", 0, "measure what `n` idle connections cost each server, instead of messages")
	fs.IntVar(&o.storm, "storm", 0, "cut `n` lossless sessions at once and watch them come back, unsteered and with the owner hint")
	fs.IntVar(&o.cores, "storm-cores", stormCores, "`cores` of the server, with --storm")
	fs.StringVar(&o.json, "json", "", "write everything measured to `file`")
	fs.StringVar(&o.show, "show", "", "print the tables of a `file` written with --json, and measure nothing")
	servers := fs.String("servers", strings.Join(names, ","), "servers to compare, a comma `list`")
	fs.StringVar(&o.base, "base", "", "`server` that the ratios are relative to (default epoll if compared, else net, else the first)")
	sizes := fs.String("sizes", "64,4KiB,64KiB,1MiB,4MiB", "payload sizes, a comma `list`")
	shapes := fs.String("loads", "1x1,64x1,16x16", "connections x depth, a comma `list`")
	fs.Var(&o.gcLoad, "gc-load", "load the garbage collector in the servers: on, off or both")
	mode := fs.String("mode", modeCRC, "`mode` of the connections: crc, or secure, which compares the frame codec with crypto/cipher too")
	fs.BoolVar(&o.codec, "codec", false, "compare the frame codec in secure mode with crypto/cipher, and measure no messages")
	fs.BoolVar(&o.build, "tags-build", false, "build the epoll flavour with -tags epoll, instead of choosing it at run time in the default build")
	fs.IntVar(&o.rounds, "rounds", 0, fmt.Sprintf("measured rounds per cell (default %d, with --quick %d or fewer)", defaultRounds, quickRounds))
	fs.DurationVar(&o.slice, "slice", 0, fmt.Sprintf("measured `time` per server and round (default %v, with --quick %v)", defaultSlice, quickSlice))
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	var errs []error
	collect := func(err error) { errs = append(errs, err) }
	var err error
	o.servers, err = chooseServers(all, *servers)
	collect(err)
	o.sizes, err = parseList(*sizes, parseSize)
	collect(err)
	o.shapes, err = parseList(*shapes, parseShape)
	collect(err)
	if o.secure = *mode == modeSecure; !o.secure && *mode != modeCRC {
		collect(fmt.Errorf("--mode %q is neither crc nor secure", *mode))
	}
	collect(o.complete())
	return o, errors.Join(errs...)
}

// complete fills in what depends on other options and checks the rest.
func (o *options) complete() error {
	rounds, slice := defaultRounds, defaultSlice
	if o.storm != 0 {
		slice = stormWindow
	}
	o.warm = defaultWarm
	if o.quick {
		rounds, slice, o.warm = quickRounds, quickSlice, quickWarm
	}
	o.rounds, o.slice = cmp.Or(o.rounds, rounds), cmp.Or(o.slice, slice)
	var errs []error
	if o.rounds < 1 || o.rounds > 1000 {
		errs = append(errs, fmt.Errorf("--rounds %d is not in 1..1000", o.rounds))
	}
	if o.storm < 0 || o.storm > stormMax || o.storm > 0 && (o.cores < 2 || o.cores > 64) {
		errs = append(errs, fmt.Errorf("--storm %d on %d cores is not within %d sessions and 2..64 cores", o.storm, o.cores, stormMax))
	}
	if o.slice < time.Millisecond || o.slice > time.Minute {
		errs = append(errs, fmt.Errorf("--slice %v is not in 1ms..1m", o.slice))
	}
	has := func(name string) bool {
		return slices.ContainsFunc(o.servers, func(v variant) bool { return v.name == name })
	}
	switch {
	case len(o.servers) == 0:
	case o.base == "" && has("epoll"):
		o.base = "epoll"
	case o.base == "" && has("net"):
		o.base = "net"
	case o.base == "":
		o.base = o.servers[0].name
	case !has(o.base):
		errs = append(errs, fmt.Errorf("--base %s is not among the servers", o.base))
	}
	return errors.Join(errs...)
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
	var cells []report.Load
	for _, g := range gc {
		for _, size := range o.sizes {
			for _, s := range o.shapes {
				cells = append(cells, report.Load{Size: size, Conns: s.conns, Depth: s.depth, GCLoad: g})
			}
		}
	}
	return cells
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

// parseSize reads a payload size such as 64, 4KiB or 1MiB.
func parseSize(text string) (int, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n < 1 || n > 16<<20 {
		return 0, fmt.Errorf("size %q is not in 1..16MiB", text)
	}
	return int(n), nil
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
