package main

import (
	"cmp"
	"context"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/bench/internal/storage"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// parsed is the options of a right call.
func parsed(t *testing.T, args string) options {
	t.Helper()
	var o options
	var errs strings.Builder
	right := command(strings.Fields(args), func(_ context.Context, of *options) error { o = *of; return nil })
	if status := cli.Run(t.Context(), right, io.Discard, &errs, strings.Fields(args)); status != cli.OK {
		t.Fatal(errs.String())
	}
	return o
}

func TestDefaultsCoverEveryPromisedCell(t *testing.T) {
	o := parsed(t, "")
	got := cellNames(o)
	want := "64 B 1x1, 64 B 64x1, 64 B 16x16, 4 KiB 1x1, 4 KiB 64x1, 4 KiB 16x16, 64 KiB 1x1, 64 KiB 64x1, 64 KiB 16x16, " +
		"1 MiB 1x1, 1 MiB 64x1, 1 MiB 16x16, 4 MiB 1x1, 4 MiB 64x1, 4 MiB 16x16"
	unasked := slices.DeleteFunc(variants(), func(v variant) bool { return v.extra })
	if got != want || o.rounds != defaultRounds || len(o.servers) != len(unasked) {
		t.Errorf("cells %s, %+v", got, o)
	}
}

func TestEveryOptionOfALoadMakesOtherCells(t *testing.T) {
	for args, want := range map[string]string{
		"--loads 1x1":              "64 B 1x1",
		"--loads 1x1 --gc-load":    "64 B 1x1 gc",
		"--loads 1x1 --pace 20000": "64 B 1x1 20000/s",
		"--loads 9x1:3,9x1":        "64 B 9x1 3 active, 64 B 9x1",
	} {
		if got := cellNames(parsed(t, args+" --sizes 64")); got != want {
			t.Errorf("%q: %s", args, got)
		}
	}
}

func cellNames(o options) string {
	var names []string
	for _, c := range o.cells() {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

func TestTheBaseIsOneOfTheServers(t *testing.T) {
	for args, want := range map[string]string{
		"--servers floor,net":              "net",
		"--servers floor":                  "floor",
		"--servers floor,net --base floor": "floor",
		"--servers net@1,net@2":            "net@1",
		"--storage":                        storageVariants()[0].name,
		"--storage --servers net,epoll":    "epoll",
	} {
		if o := parsed(t, args); o.base != want {
			t.Errorf("%q: base %q", args, o.base)
		}
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	clitest.AsProgram(t) // wrong arguments that are accepted start servers, and not these tests once more
	for args, want := range map[string]string{
		"--servers floor,nothing":          `unknown server "nothing"`,
		"--servers floor,net,floor":        "--servers: floor is named twice",
		"--servers floor --base net":       "--base net",
		"--sizes 64,0":                     `size "0"`,
		"--sizes 17MiB":                    `size "17MiB"`,
		"--loads 1x2x3":                    `load "1x2x3"`,
		"--loads 0x1":                      `load "0x1"`,
		"--slice 1ns":                      `--slice "1ns"`,
		"more":                             "usage: bench [flags]",
		"--sizes x --loads y --servers zz": `size "x"`,
		"--loads 5x1:6":                    `load "5x1:6"`,
		"--servers net@0":                  `server "net@0": the cores are not in 1..64`,
		"--servers floor@2":                "floor has one core",
		"--pace 5 --servers grpc":          "--pace: server grpc has a client of its own",
		"--rivals --servers gprc":          `unknown server "gprc"`,
		"--storage --pace 5":               "--pace: is for echoed messages, not for",
		"--storage --mode secure":          "--mode: is for echoed messages, not for",
		"--storage --growth":               "--growth: is for echoed messages, not for",
		"--storage --servers floor":        `unknown server "floor"`,
		"--storage --sizes 64":             "--sizes 64: want multiples",
		"--storage --sizes 2MiB":           "--sizes 2097152: want multiples",
		"--storage --loads 4x1:2":          "all connections to a storage server are active",
		"--storage --storage-size 64KiB":   "--storage-size: 65536 has no room",
		"--storage-size=1GiB":              "nothing without --storage",
		"--storage-dir=/":                  "nothing without --storage",
	} {
		var errs strings.Builder
		if status := run(t.Context(), strings.Fields(args), io.Discard, &errs); status != cli.Usage || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: status %d, %s; want %s", args, status, errs.String(), want)
		}
	}
}

func TestHelpIsNoErrorAndFitsAHundredColumns(t *testing.T) {
	var usage strings.Builder
	if status := run(t.Context(), []string{"-h"}, &usage, io.Discard); status != cli.OK {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{"Examples:", "  epoll ", "\n      --quick  ", "\n      --slice time  "} {
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

// A run that must end in time does so on slow servers, too, with fewer cells, each of which
// has the rounds that its judgement takes.
func TestAPlanEndsInTimeAndJudgesWhatItMeasures(t *testing.T) {
	for _, c := range []struct {
		args string
		slow time.Duration // times the plan's estimate
		want int           // cells at least
		most time.Duration
	}{
		{"--quick", 1, 6, time.Minute}, {"--quick --gc-load", 1, 3, time.Minute}, {"--quick", 2, 3, time.Minute}, {"--quick", 10, 1, time.Minute},
		{"--rivals", 1, 8, 4 * time.Minute}, {"--rivals", 3, 3, 4 * time.Minute}, {"--storage", 2, 10, 6 * time.Minute}, {"--storage --quick", 1, 5, time.Minute},
	} {
		o := parsed(t, c.args)
		start := time.Unix(1e9, 0)
		now := start
		p := newPlan(o, func() time.Time { return now })
		measured := 0
		for _, l := range o.cells() {
			if !p.begin() {
				break
			}
			measured++
			round := p.round(l) * c.slow
			now = now.Add(round) // system calls
			done := 0
			for done < o.rounds && (done == 0 || p.another(done, round)) {
				now = now.Add(round)
				done++
			}
			if c.slow < 3 && done < report.EnoughRounds {
				t.Errorf("%s, %d times as slow as expected: %v has %d rounds", c.args, c.slow, l, done)
			}
		}
		if took := now.Sub(start); took > c.most || measured < c.want {
			t.Errorf("%s, %d times as slow as expected: %d of %d cells in %v", c.args, c.slow, measured, len(o.cells()), took)
		}
	}
}

func TestAFullPlanHasNoEnd(t *testing.T) {
	o := parsed(t, "")
	now := time.Unix(1e9, 0)
	p := newPlan(o, func() time.Time { return now })
	want := load.Slice{Warm: defaultWarm, WarmMax: extendMax, Window: o.slice, WindowMax: o.slice + extendMax}
	if p.slice != want {
		t.Fatalf("%+v", p.slice)
	}
	now = now.Add(100 * time.Hour)
	if !p.begin() || !p.another(7, time.Hour) {
		t.Error("it ends")
	}
}

// Matrix: OB-08
func TestEveryFlagIsNamedByWhatItRefuses(t *testing.T) {
	const nowhere = "/nonexistent/x"
	bad := map[string]string{"json": nowhere, "plot": nowhere, "show": nowhere, "storage-dir": nowhere}
	var usage strings.Builder
	run(t.Context(), []string{"-h"}, &usage, io.Discard)
	names := regexp.MustCompile(`(?m)^      --(\S+)( \S)?`).FindAllStringSubmatch(usage.String(), -1)
	names = slices.DeleteFunc(names, func(f []string) bool { return f[1] == "version" })
	if len(names) < len(bad) {
		t.Errorf("only %q", names)
	}
	clitest.AsProgram(t) // as above
	for _, f := range names {
		name := f[1]
		args := []string{"--servers", "net", "--" + name + "=" + cmp.Or(bad[name], "?")}
		switch {
		case strings.HasPrefix(name, "storage-"):
			args = []string{"--storage", args[2]}
		case name == "show":
			args = args[2:]
		}
		var errs strings.Builder
		if status := run(t.Context(), args, io.Discard, &errs); status == cli.OK || !strings.Contains(errs.String(), "--"+name) || strings.Count(errs.String(), "\n") > 2 {
			t.Errorf("%q: status %d, %q", args, status, errs.String())
		}
	}
}

// Matrix: BE-02
func TestPresetsNameWhatTheyCompare(t *testing.T) {
	for args, want := range map[string]struct {
		has, hasNot string
		cells       int
		bounded     bool // the run ends in time
	}{
		"":                               {"floor,floor+store,net,epoll,epoll+v1", "grpc,epoll+spin", 15, false},
		"--quick":                        {"floor,net,epoll", "floor+store,epoll+v1", 6, true},
		"--rivals":                       {"floor+store,net,epoll,netpoll,grpc", "floor,epoll+v1", 8, true},
		"--rivals --sizes 64 --slice 1s": {"netpoll,grpc", "floor", 2, false},
		"--quick --rivals":               {"net,epoll,netpoll,grpc", "floor", 8, true},
		"--growth":                       {"floor,net,epoll", "floor+store,epoll+v1,grpc", 7, false},
		"--growth --servers grpc,net@2":  {"grpc,net@2", "epoll", 7, false},
		"--storage":                      {"epoll,net", "floor", 30, true},
		"--storage --quick":              {"epoll,net", "floor", 5, true},
		"--storage --rounds 3":           {"epoll,net", "floor", 30, false},
	} {
		o := parsed(t, args)
		compares := func(name string) bool {
			return slices.ContainsFunc(o.servers, func(v variant) bool { return v.name == name })
		}
		for name := range strings.SplitSeq(want.has, ",") {
			if !compares(name) {
				t.Errorf("%s: %s is missing", args, name)
			}
		}
		for name := range strings.SplitSeq(want.hasNot, ",") {
			if compares(name) {
				t.Errorf("%s: %s is compared", args, name)
			}
		}
		if len(o.cells()) != want.cells || (o.total > 0) != want.bounded || o.quick && o.total > time.Minute && !o.storage {
			t.Errorf("%s: %d cells within %v", args, len(o.cells()), o.total)
		}
	}
}

// The flags of the requests say whether the page cache takes part.
// Matrix: BE-08
func TestTheRequestsOfAStorageCellAreWhatItsNameSays(t *testing.T) {
	r := &runner{disk: &storage.File{}}
	for what, want := range map[string]struct {
		kind  blocks.Kind
		flags uint8
	}{
		readDirect: {blocks.Read, blocks.Direct}, readCached: {blocks.Read, 0}, readUncached: {blocks.Read, 0},
		writeDirect: {blocks.Write, blocks.Direct}, writeBuffered: {blocks.Write, blocks.Grouped},
	} {
		var o load.Options
		if r.storageRequest(what, &o); o.Kind != want.kind || o.Flags != want.flags {
			t.Errorf("%s: kind %d, flags %#x", what, o.Kind, o.Flags)
		}
	}
}
