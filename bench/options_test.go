package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/load"
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

func TestGCLoadAddsOrReplacesCells(t *testing.T) {
	for args, want := range map[string]string{
		"":                "64 B 1x1",
		"--gc-load":       "64 B 1x1 gc",
		"--gc-load=on":    "64 B 1x1 gc",
		"--gc-load=both":  "64 B 1x1, 64 B 1x1 gc",
		"--gc-load=false": "64 B 1x1",
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
		"--gc-load=maybe":                  "on, off or both",
		"--mode plain":                     `--mode "plain"`,
		"more":                             `"more"`,
		"--sizes x --loads y --servers zz": `size "x"`,
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

func TestHelpIsNoError(t *testing.T) {
	var usage strings.Builder
	if status := run([]string{"-h"}, nil, io.Discard, &usage); status != exitOK || !strings.Contains(usage.String(), "Example:") {
		t.Errorf("status %d\n%s", status, usage.String())
	}
}

func TestAQuickPlanEndsInTimeWithMoreRoundsThanItCanHave(t *testing.T) {
	for _, slow := range []time.Duration{1, 2, 10} {
		// Both halves of the promised cells, one run each.
		o, err := parseOptions([]string{"--quick", fmt.Sprintf("--gc-load=%s", [...]string{"off", "on"}[slow%2])}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
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
			for rounds := 1; ; rounds++ {
				now = now.Add(round)
				if rounds == 1000 || !p.another(round) {
					break
				}
			}
		}
		if took := now.Sub(start); took > quickTotal+longest {
			t.Errorf("%d times as slow as expected: %v", slow, took)
		}
		if slow == 1 && measured != len(o.cells()) {
			t.Errorf("%d of %d cells measured", measured, len(o.cells()))
		}
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
	if !p.begin() || !p.another(time.Hour) {
		t.Error("it ends")
	}
}
