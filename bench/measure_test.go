package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
)

// script answers for the children of a runner: each slice of each server brings
// the same, and a server that counts its system calls makes some all the time.
type script struct {
	t      *testing.T
	steps  []string     // the events, in order
	slices []load.Slice // that were asked for
	slow   bool         // system calls are being counted from outside
	own    *uint64      // the server's own count; nil: it has none
}

// A slice of 1250 messages: 1000 of them in the window, of which 990 began
// and ended in it.
const (
	sliceTotal   = 1250
	sliceCalls   = 5000
	sliceReplies = 990
	strayCalls   = 100000      // that belong to no slice, at each other step
	slowed       = time.Second // by which counting makes latencies longer
)

func (s *script) strays() {
	if s.own != nil {
		*s.own += strayCalls
	}
}

func (s *script) ask(_ context.Context, _ time.Duration, _ *proc.Child, method string, arg, result any) error {
	switch method {
	case "GCLoad":
		s.strays()
		s.steps = append(s.steps, fmt.Sprint("gc ", arg))
	case "Syscalls":
		s.steps = append(s.steps, "read")
		*result.(*int64) = child.NotCounted
		if s.own != nil {
			*result.(*int64) = int64(*s.own)
		}
	case "Open", "Close":
		s.strays()
	case "Run":
		s.steps = append(s.steps, "run")
		s.slices = append(s.slices, arg.(child.Slice).Slice)
		if s.own != nil {
			*s.own += sliceCalls
		}
		r := load.Result{
			Bytes: 1000 * 150, PerReply: 150, Total: sliceTotal, Window: 500 * time.Millisecond, Steady: true,
			ServerCPU: 40 * time.Millisecond, ClientCPU: 30 * time.Millisecond, Latency: cli.NewHistogram(),
		}
		for range sliceReplies {
			took := 2 * time.Millisecond
			if s.slow {
				took += slowed
			}
			r.Latency.Record(took)
		}
		*result.(*load.Result) = r
	default:
		s.t.Fatalf("method %s", method)
	}
	return nil
}

// outside counts the calls of a script from outside.
type outside struct {
	s     *script
	begin int
}

func (o *outside) Read() (uint64, error) {
	o.s.steps = append(o.s.steps, "read")
	n := uint64(0)
	for _, step := range o.s.steps[o.begin:] {
		switch step {
		case "run":
			n += sliceCalls
		case "gc true", "gc false":
			n += strayCalls
		}
	}
	return n, nil
}

func (o *outside) Close() { o.s.slow = false }

// scripted is a runner of two servers whose children are a script.
func scripted(t *testing.T, s *script, args ...string) *runner {
	t.Helper()
	opt := parsed(t, strings.Join(args, " ")+" --servers net,floor")
	r := newRunner(opt, io.Discard)
	r.askWithin = s.ask
	for i, v := range opt.servers {
		r.targets = append(r.targets, &target{variant: v, pid: i + 1})
	}
	return r
}

func (r *runner) countOutside(s *script) {
	r.counter = func(int) (callCounter, error) {
		s.slow = true
		s.steps = append(s.steps, "start")
		return &outside{s, len(s.steps)}, nil
	}
}

// The calls that switch the load of the collector do not count.
func TestSystemCallsAreDividedByTheMessagesOfTheWholeSlice(t *testing.T) {
	for name, prepare := range map[string]func(*runner, *script){
		"counted by the server itself":           func(_ *runner, s *script) { s.own = new(uint64) },
		"counted by the raw_syscalls tracepoint": func(r *runner, s *script) { r.countOutside(s) },
		"not counted":                            func(*runner, *script) {},
	} {
		for _, gcLoad := range []bool{false, true} {
			s := &script{t: t}
			r := scripted(t, s, "--rounds", "3")
			prepare(r, s)
			cell, err := r.measureCell(t.Context(), report.Load{Size: 64, Conns: 1, Depth: 1, GCLoad: gcLoad})
			clitest.Must(t, err)
			for _, res := range cell.Results {
				want := []float64{sliceCalls / sliceTotal, sliceCalls / sliceTotal}
				if strings.HasPrefix(name, "not") {
					want = nil
				}
				if !slices.Equal(res.Syscalls.PerMessage, want) {
					t.Errorf("%s: %v calls per message, want %v", name, res.Syscalls.PerMessage, want)
				}
			}
			if n := len(s.steps); gcLoad && (s.steps[0] != "gc true" || s.steps[n-1] != "gc false") {
				t.Errorf("%s: %v", name, s.steps)
			}
		}
	}
}

func TestSlicesThatAreCountedAreNotTimed(t *testing.T) {
	s := &script{t: t}
	r := scripted(t, s, "--rounds", "3")
	r.countOutside(s)
	cell, err := r.measureCell(t.Context(), report.Load{Size: 64, Conns: 5, Depth: 1, Active: 3, Rate: 500})
	clitest.Must(t, err)
	for _, res := range cell.Results {
		if len(res.Samples) != 3 || res.Latency.Count() != 3*sliceReplies || res.Latency.Summary().Max > 3000 {
			t.Errorf("%s: %d samples, %d latencies: %+v", res.Server, len(res.Samples), res.Latency.Count(), res.Latency.Summary())
		}
	}
	// Two servers: one count each, three rounds, one count each.
	for i, slice := range s.slices {
		counted := i < 2 || i >= 8
		if short := slice.WindowMax == slice.Window; short != counted || len(s.slices) != 10 || slice.Rate != 500 || slice.Active != 3 {
			t.Errorf("slice %d of %d: %+v", i, len(s.slices), slice)
		}
	}
}

func TestTheFiguresOfASampleAreThoseOfTheWindow(t *testing.T) {
	s := &script{t: t}
	r := scripted(t, s, "--rounds", "1")
	cell, err := r.measureCell(t.Context(), report.Load{Size: 100, Conns: 1, Depth: 1})
	clitest.Must(t, err)
	got := cell.Results[0].Samples[0]
	// 1000 messages of 100 bytes of payload and 150 on the wire in half a second.
	for name, pair := range map[string][2]float64{
		"messages": {got.Messages, 1000}, "window": {got.WindowS, 0.5}, "replies": {float64(got.Replies), sliceReplies},
		"messages/s": {got.MessagesPerS, 2000}, "MB/s": {got.MBPerS, 0.2},
		"server CPU": {got.ServerCPUUS, 40}, "client CPU": {got.ClientCPUUS, 30},
		"p50": {got.P50US, 2000}, "p99": {got.P99US, 2000}, "p99.9": {got.P999US, 2000},
	} {
		if math.Abs(pair[0]-pair[1]) > pair[1]/100 {
			t.Errorf("%s: %v, want %v", name, pair[0], pair[1])
		}
	}
}

// The benchmark measures the defaults of a user.
func TestTheMessengerHasItsDefaultLimits(t *testing.T) {
	for _, v := range messengerVariants() {
		got, _ := messengerConfig(v.config)
		got.Name, got.Nonce, got.Plane = wire.EntityName{}, nil, loop.Config{}
		if !reflect.DeepEqual(got, control.Config{}) {
			t.Errorf("%s changes %+v", v.name, got)
		}
	}
}
