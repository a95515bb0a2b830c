package main

import (
	"errors"
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func TestDefaultsCoverEveryPromisedCell(t *testing.T) {
	o, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range o.cells() {
		names = append(names, c.String())
	}
	got := strings.Join(names, ", ")
	want := "64 B 1x1, 64 B 64x1, 64 B 16x16, 4 KiB 1x1, 4 KiB 64x1, 4 KiB 16x16, 64 KiB 1x1, 64 KiB 64x1, 64 KiB 16x16, " +
		"1 MiB 1x1, 1 MiB 64x1, 1 MiB 16x16, 4 MiB 1x1, 4 MiB 64x1, 4 MiB 16x16"
	if got != want {
		t.Errorf("cells %s", got)
	}
	if o.rounds != defaultRounds || o.slice != defaultSlice || len(o.servers) != len(defaultServers()) {
		t.Errorf("%+v", o)
	}
}

// defaultServers are the variants that are compared unasked.
func defaultServers() []variant {
	return slices.DeleteFunc(variants(), func(v variant) bool { return v.extra })
}

func TestGCLoadPaceAndStreamsMakeOtherCells(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "64 B 1x1",
		"--gc-load":                          "64 B 1x1 gc",
		"--gc-load=on":                       "64 B 1x1 gc",
		"--gc-load=both":                     "64 B 1x1, 64 B 1x1 gc",
		"--gc-load=false":                    "64 B 1x1",
		"--pace 20000":                       "64 B 1x1 20000/s",
		"--beside 8x4MiB --gc-load --pace 7": "64 B 1x1 7/s gc beside 8x4 MiB",
	} {
		o, err := parseOptions(append(strings.Fields(args), "--sizes", "64", "--loads", "1x1"), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range o.cells() {
			names = append(names, c.String())
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%q: %s", args, got)
		}
	}
}

func TestTheBaseIsOneOfTheServers(t *testing.T) {
	for args, want := range map[string]string{
		"--servers floor,net":              "net",
		"--servers floor":                  "floor",
		"--servers floor,net --base floor": "floor",
	} {
		o, err := parseOptions(strings.Fields(args), io.Discard)
		if err != nil || o.base != want {
			t.Errorf("%q: base %q, %v", args, o.base, err)
		}
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"--servers floor,nothing":          `unknown server "nothing"`,
		"--servers floor --base net":       "--base net",
		"--sizes 64,0":                     `size "0"`,
		"--sizes 17MiB":                    `size "17MiB"`,
		"--sizes 10e30":                    `size "10e30"`,
		"--loads 16":                       `load "16"`,
		"--loads 1x2x3":                    `load "1x2x3"`,
		"--loads 0x1":                      `load "0x1"`,
		"--rounds -1":                      "--rounds -1",
		"--slice 1ns":                      "--slice 1ns",
		"--slice 5":                        `--slice "5": the unit is missing`,
		"--nothing":                        "no flag --nothing",
		"--gc-load=maybe":                  "on, off or both",
		"--mode plain":                     `--mode "plain"`,
		"more":                             `"more"`,
		"--sizes x --loads y --servers zz": `size "x"`,
		"--growth --growth-conns 1,0":      `--growth-conns: "0"`,
		"--growth --growth-conns 30000":    `--growth-conns: "30000"`,
		"--growth --growth-cores 1,many":   `--growth-cores: "many"`,
		"--growth --sizes 64,128":          "--growth has one size",
		"--pace -1":                        "--pace: -1 is not in 0..",
		"--pace 5 --servers grpc":          "--pace: server grpc has a client of its own",
		"--beside 4MiB":                    `--beside: "4MiB" is not CONNECTIONSxSIZE`,
		"--beside 8x0":                     `--beside: "8x0"`,
		"--beside 65x64":                   "at most 64 connections",
		"--beside 1x64 --servers grpc":     "--beside: server grpc has a client of its own",
		"--growth --pace 5":                "--pace: is for echoed messages, not for",
		"--storage --pace 5":               "--pace: is for echoed messages, not for",
		"--storage kv --beside 1x64":       "--beside: is for echoed messages, not for",
		"--figures . --beside 1x64":        "--beside: is for echoed messages, not for",
		"--rivals --servers gprc":          `unknown server "gprc"`,
		"--plot . --idle 5":                "--plot: --storm, --idle and --codec have no pictures",
		"--figures . --codec":              "--figures: --storm, --idle and --codec have no pictures",
	} {
		_, err := parseOptions(strings.Fields(args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", args, err, want)
		}
		if status := run(strings.Fields(args), nil, io.Discard, io.Discard); status != exitUsage {
			t.Errorf("%q: exit status %d", args, status)
		}
	}
}

func TestHelpIsNoErrorAndFitsAHundredColumns(t *testing.T) {
	var usage strings.Builder
	if status := run([]string{"-h"}, nil, &usage, io.Discard); status != exitOK {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"Example:", "  epoll ", "\n  --quick  ", "\n  --slice time  "} {
		if !strings.Contains(usage.String(), want) {
			t.Errorf("no %q in\n%s", want, usage.String())
		}
	}
	for line := range strings.Lines(usage.String()) {
		if n := len([]rune(line)) - 1; n > cli.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestAQuickPlanEndsInTimeAndJudgesWhatItMeasures(t *testing.T) {
	for _, c := range []struct {
		gc   string
		slow time.Duration // times what the plan expects
		want int           // cells at least
	}{{"off", 1, 6}, {"on", 1, 3}, {"off", 2, 3}, {"off", 10, 1}} {
		o, err := parseOptions([]string{"--quick", "--gc-load=" + c.gc}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		slow := c.slow
		start := time.Unix(1e9, 0)
		now := start
		p := newPlan(o, func() time.Time { return now })
		measured := 0
		var longest time.Duration
		for _, l := range o.cells() {
			if !p.begin() {
				break
			}
			measured++
			round := time.Duration(len(o.servers)) * p.need(l) * slow
			longest = max(longest, round)
			now = now.Add(round) // system calls
			done := 0
			for done < 1000 && (done == 0 || p.another(done, round)) {
				now = now.Add(round)
				done++
			}
			if slow < 10 && done < report.EnoughRounds {
				t.Errorf("%d times as slow as expected: %v has %d rounds", slow, l, done)
			}
		}
		// A cell that is begun has one round in which system calls are counted, and
		// one that is measured.
		if took := now.Sub(start); took > quickTotal+2*longest || took > time.Minute {
			t.Errorf("%d times as slow as expected: %v", slow, took)
		}
		if measured < c.want {
			t.Errorf("GC load %s, %d times as slow as expected: %d of %d cells measured", c.gc, slow, measured, len(o.cells()))
		}
	}
}

// Slow servers take rounds from a run with all rivals, and no more than its four minutes.
func TestARunWithAllRivalsEndsInTime(t *testing.T) {
	for _, slow := range []time.Duration{1, 3, 30} { // times what the plan expects
		o, err := parseOptions([]string{"--rivals"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Unix(1e9, 0)
		now := start
		p := newPlan(o, func() time.Time { return now })
		rounds := 0
		for _, l := range o.cells() {
			if !p.begin() {
				break
			}
			round := p.round(l) * slow
			now = now.Add(round) // system calls
			for done := 0; done < o.rounds && (done == 0 || p.another(done, round)); done++ {
				now = now.Add(round)
				rounds++
			}
			now = now.Add(round) // system calls, once more
		}
		if slow == 1 && rounds != len(o.cells())*o.rounds {
			t.Errorf("%d rounds of %d cells", rounds, len(o.cells()))
		}
		if took := now.Sub(start); slow < 30 && took > 4*time.Minute || rounds == 0 {
			t.Errorf("%d times as slow as expected: %v, %d rounds", slow, took, rounds)
		}
	}
}

func TestAQuickRunHasFewerCellsWithAsManyRounds(t *testing.T) {
	o, err := parseOptions([]string{"--quick"}, io.Discard)
	if err != nil || len(o.cells()) != 6 || o.rounds < report.EnoughRounds || o.slice != quickSlice {
		t.Errorf("%d cells, %+v, %v", len(o.cells()), o, err)
	}
	o, err = parseOptions([]string{"--quick", "--sizes", "100", "--loads", "2x2", "--rounds", "9"}, io.Discard)
	if err != nil || len(o.cells()) != 1 || o.cells()[0].Size != 100 || o.rounds != 9 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestAFullPlanHasNoEnd(t *testing.T) {
	o, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	p := newPlan(o, func() time.Time { return now })
	want := load.Slice{Warm: defaultWarm, WarmMax: extendMax, Window: defaultSlice, WindowMax: defaultSlice + extendMax}
	if p.slice != want {
		t.Fatalf("%+v", p.slice)
	}
	now = now.Add(100 * time.Hour)
	if !p.begin() || !p.another(7, time.Hour) {
		t.Error("it ends")
	}
}

// A flag that no call below is wrong about fails the test.
// Matrix: OB-08
func TestEveryFlagIsNamedByWhatItRefuses(t *testing.T) {
	bad := map[string]string{
		"base": "floor", "gc-load": "loud", "idle": "-5", "json": "/nonexistent/x", "loads": "1", "mode": "plain", "rounds": "-1",
		"servers": "mine", "show": "/nonexistent", "sizes": "x", "slice": "5", "storm": "-1", "storm-cores": "1",
		"pace": "-1", "beside": "8",
		"growth-conns": "0", "growth-cores": "x", "plot": "x", "figures": "x",
		"storage": "paper", "storage-dir": "/nonexistent/x", "storage-io": "paper", "storage-size": "much",
	}
	var usage strings.Builder
	if _, err := parseOptions([]string{"-h"}, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^  --(\S+)( \S)?`).FindAllStringSubmatch(usage.String(), -1)
	if len(names) < len(bad) {
		t.Errorf("only %q", names)
	}
	for _, f := range names {
		name := f[1]
		args := []string{"--servers", "net", "--storm", "2", "--" + name + "=" + bad[name]}
		switch {
		case name == "quick" || name == "codec" || name == "tags-build" || name == "rivals" || name == "growth":
			args[4] = "--" + name + "=perhaps"
		case bad[name] == "":
			t.Errorf("--%s: no value is known that is wrong", name)
			continue
		case strings.HasPrefix(name, "storage-"):
			args = []string{"--storage", args[4]}
		case name == "storm" || name == "show":
			args = args[4:]
		}
		var errs strings.Builder
		if status := run(args, nil, io.Discard, &errs); status == exitOK || !strings.Contains(errs.String(), "--"+name) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: status %d, %q", args, status, errs.String())
		}
	}
}

// Matrix: BE-02
func TestPresetsNameWhatTheyCompare(t *testing.T) {
	all := everyVariant()
	for args, want := range map[string]struct {
		has, hasNot string
		cells       int
		slice       time.Duration
	}{
		"--rivals":                       {"floor+store,net,epoll,netpoll,grpc,grpc+stream", "floor,loop,epoll+v1", 8, rivalsSlice},
		"--rivals --sizes 64 --slice 1s": {"netpoll,grpc", "loop", 2, time.Second},
		"--growth":                       {"floor,net,epoll", "floor+store,loop,epoll+v1,grpc", 15, growthSlice},
		"--growth --rivals":              {"net,epoll,grpc,netpoll", "floor+store", 8, growthSlice},
		"--growth --servers grpc,net":    {"grpc,net", "epoll", 15, growthSlice},
		"--figures figures":              {"floor,floor+store,net,epoll,netpoll,grpc,grpc+stream", "loop,epoll+v1", 15, defaultSlice},
	} {
		o, err := parseOptions(strings.Fields(args), io.Discard)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		for name := range strings.SplitSeq(want.has, ",") {
			if !o.has(name) {
				t.Errorf("%s: %s is missing", args, name)
			}
		}
		for name := range strings.SplitSeq(want.hasNot, ",") {
			if o.has(name) {
				t.Errorf("%s: %s is compared", args, name)
			}
		}
		if len(o.cells()) != want.cells || o.slice != want.slice {
			t.Errorf("%s: %d cells, slices of %v", args, len(o.cells()), o.slice)
		}
		if len(o.growth.servers) == 0 || len(o.growth.servers) > len(all) {
			t.Errorf("%s: growth of %d servers", args, len(o.growth.servers))
		}
	}
	for args, want := range map[string]time.Duration{
		"--rivals": rivalsTotal, "--rivals --rounds 9": 0, "--rivals --sizes 64": 0, "--quick": quickTotal, "--quick --rivals": quickTotal, "": 0, "--figures figures --rivals": 0,
	} {
		if o, err := parseOptions(strings.Fields(args), io.Discard); err != nil || o.total != want {
			t.Errorf("%q may take %v, want %v, %v", args, o.total, want, err)
		}
	}
	o, err := parseOptions([]string{"--figures", "figures"}, io.Discard)
	if slices.ContainsFunc(o.growth.servers, func(v variant) bool { return v.rival || v.name == "floor+store" }) || len(o.growth.servers) < 3 {
		t.Errorf("--figures: growth of %+v", o.growth.servers)
	}
	if err != nil || !o.growth.on || o.plot != "figures" || o.json != "figures/results.json" {
		t.Errorf("--figures: growth %v, pictures in %q, results in %q, %v", o.growth.on, o.plot, o.json, err)
	}
}
