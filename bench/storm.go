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
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/procstat"
	"github.com/ringmsgr/ringmsgr/control"
)

const (
	stormCores  = 4
	stormMax    = 4096                   // sessions: each is a thread of the client
	stormSize   = 64                     // bytes of payload
	stormEvery  = 100 * time.Millisecond // a session sends so often, if its last echo has come
	stormWindow = time.Second
	stormCalm   = 500 * time.Millisecond // of echoes before the cut
	// stormPatience bounds what must happen.
	stormPatience = 45 * time.Second
)

// stormWays are the ways of steering that are compared, the base first.
var stormWays = []struct {
	steer control.Steer
	about string
}{
	{control.SteerNone, "the kernel's hash chooses the core of each connection"},
	{control.SteerHint, "reconnects come from a port that names the core of their session"},
}

// stormTarget is one way of steering: a server and its clients, a process each.
type stormTarget struct {
	server, client *proc.Child
	hello          stormHello
	result         *report.StormResult
}

// stormRun measures them in turn.
type stormRun struct {
	r       *runner
	targets []*stormTarget
}

// measureStorm cuts opt.storm sessions at once, again and again, unsteered and
// steered in turn, and watches them come back.
func measureStorm(ctx context.Context, opt options, stdout, stderr io.Writer) (err error) {
	s := &stormRun{r: newRunner(opt, stderr)}
	defer s.stop()
	r := s.r
	r.file.Base, r.file.Width = "", columns(stdout) // no servers are compared
	r.file.Storm = &report.Storm{
		Sessions: opt.storm, Cores: opt.cores, Size: stormSize, EveryMS: float64(stormEvery.Milliseconds()), WindowS: opt.slice.Seconds(), Base: string(stormWays[0].steer),
		Results: make([]report.StormResult, 0, len(stormWays)), // targets point into it
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	for round := range opt.rounds {
		r.progress.say("storm %d of %d", round+1, opt.rounds)
		for place := range s.targets {
			i := place
			if round%2 == 1 {
				i = len(s.targets) - 1 - place
			}
			sample, err := s.storm(ctx, s.targets[i])
			if err != nil {
				return fmt.Errorf("%s: %w", s.targets[i].result.Steer, err)
			}
			sample.Round, sample.Order = round+1, place+1
			s.targets[i].result.Samples = append(s.targets[i].result.Samples, sample)
		}
	}
	s.stop()
	r.file.Storm.Compute()
	if err := r.file.WriteHead(stdout); err != nil {
		return err
	}
	return errors.Join(r.file.WriteStorm(stdout), r.save())
}

func (s *stormRun) start(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	r := s.r
	r.spawner = proc.NewSpawner()
	spawn := func(name string, hello any, args ...string) (*proc.Child, error) {
		return r.spawner.Start(ctx, name, exe, append([]string{child.Command}, args...), r.stderr, hello)
	}
	for _, way := range stormWays {
		t := &stormTarget{}
		name := string(way.steer)
		if t.server, err = spawn("server "+name, &t.hello, "storm-server", name, strconv.Itoa(r.opt.cores)); err != nil {
			return err
		}
		s.targets = append(s.targets, t)
		if t.hello.Unsteered != "" {
			r.note("sessions steered by %s are left out: %s", name, t.hello.Unsteered)
			t.server.Stop()
			s.targets = s.targets[:len(s.targets)-1]
			continue
		}
		var hello struct{}
		if t.client, err = spawn("client "+name, &hello, "storm-client", name); err != nil {
			return err
		}
		results := &r.file.Storm.Results
		*results = append(*results, report.StormResult{Steer: name, About: way.about, Settings: t.hello.Settings})
		t.result = &(*results)[len(*results)-1]
		r.progress.say("opening %d sessions, steering %s", r.opt.storm, name)
		open := flockRequest{Open: &flockOptions{Addr: t.hello.Addr, Sessions: r.opt.storm, Size: stormSize}}
		if err := r.ask(ctx, t.client, open, nil); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all processes. It may be called twice.
func (s *stormRun) stop() {
	for _, t := range s.targets {
		if t.client != nil {
			t.client.Stop()
		}
		t.server.Stop()
	}
	s.targets = nil
	s.r.stop()
}

// storm is one storm of one target.
func (s *stormRun) storm(ctx context.Context, t *stormTarget) (sample report.StormSample, err error) {
	r := s.r
	var before, cut, after stormStats
	var seen flockResult
	if err := r.ask(ctx, t.client, flockRequest{Begin: true}, nil); err != nil {
		return sample, err
	}
	if err := pause(ctx, stormCalm); err != nil {
		return sample, err
	}
	if err := r.ask(ctx, t.server, stormRequest{}, &before); err != nil {
		return sample, err
	}
	cpu, err := procstat.ReadCPU(t.server.PID())
	if err != nil {
		return sample, err
	}
	if err := r.ask(ctx, t.server, stormRequest{Cut: true}, &cut); err != nil {
		return sample, err
	}
	if err := r.ask(ctx, t.client, flockRequest{Await: &flockWindow{At: cut.At, Length: r.opt.slice}}, &seen); err != nil {
		return sample, err
	}
	spent, err := procstat.ReadCPU(t.server.PID())
	if err != nil {
		return sample, err
	}
	if err := r.ask(ctx, t.server, stormRequest{}, &after); err != nil {
		return sample, err
	}
	if n := after.Cut - before.Cut; n != int64(r.opt.storm) || after.Open != r.opt.storm {
		return sample, fmt.Errorf("%d of %d sessions were cut, %d are there", n, r.opt.storm, after.Open)
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return report.StormSample{
		Moved: float64(after.Moved - before.Moved), Hinted: float64(seen.Hinted),
		BackMS: ms(seen.All), MedianBackMS: ms(seen.Half),
		MessagesPerS: float64(seen.Storm.Echoes) / seen.Storm.Length.Seconds(), P50US: us(seen.Storm.P50), P99US: us(seen.Storm.P99),
		Late:        float64(seen.Storm.Late),
		ServerCPUMS: ms(spent - cpu),
		CalmPerS:    float64(seen.Calm.Echoes) / seen.Calm.Length.Seconds(), CalmP99US: us(seen.Calm.P99),
		FailedAttempts: float64(seen.Attempts) - float64(r.opt.storm),
	}, nil
}
