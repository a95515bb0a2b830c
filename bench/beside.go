package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
)

const (
	besideMax = 64 // connections
	paceMax   = 10_000_000
	// besideLead is how long the streams run before the load begins. They end as long
	// behind it, at least.
	besideLead = 100 * time.Millisecond
)

// setBeside reads the value of --beside.
func (o *options) setBeside(text string) error {
	if text == "" {
		return nil
	}
	conns, size, ok := strings.Cut(text, "x")
	n, err := strconv.Atoi(conns)
	bytes, sizeErr := parseSize(size)
	if !ok || err != nil || sizeErr != nil || n < 1 || n > besideMax {
		return fmt.Errorf("%q is not CONNECTIONSxSIZE, such as 8x4MiB, with at most %d connections", text, besideMax)
	}
	o.beside = report.Streams{Conns: n, Size: bytes}
	return nil
}

// checkPace judges --pace.
func (o *options) checkPace() error {
	if o.pace < 0 || o.pace > paceMax {
		return fmt.Errorf("%d is not in 0..%d", o.pace, paceMax)
	}
	return o.onlyEchoes(o.pace > 0)
}

// onlyEchoes is an error if something is given that the servers, or what is measured of them,
// cannot have.
func (o *options) onlyEchoes(given bool) error {
	switch i := slices.IndexFunc(o.servers, func(v variant) bool { return v.own }); {
	case !given:
		return nil
	case o.storage.what != "" || o.growth.on || o.figures != "" || o.storm > 0 || o.idle > 0 || o.codec:
		return errors.New("is for echoed messages, not for --storage, --growth, --figures, --storm, --idle and --codec")
	case i >= 0:
		return fmt.Errorf("server %s has a client of its own, which cannot do that", o.servers[i].name)
	}
	return nil
}

// openStreams connects what is in the way to a server, as the load is connected.
func (r *runner) openStreams(ctx context.Context, t *target, o load.Options, s report.Streams) error {
	if s.Conns == 0 {
		return nil
	}
	o.Conns, o.Depth, o.Size = s.Conns, 1, s.Size
	return r.ask(ctx, r.streams, child.ClientRequest{Server: t.name, Open: &o}, nil)
}

func (r *runner) closeStreams(ctx context.Context, t *target) error {
	if r.streams == nil {
		return nil
	}
	return r.ask(ctx, r.streams, child.ClientRequest{Server: t.name, Close: true}, nil)
}

// errAlone is the end of a slice whose load the streams were not beside all of the time.
var errAlone = errors.New("the streams ended before the load")

// besideTries is how often a slice is made that a busy machine stretches beyond the end
// of its streams.
const besideTries = 5

// loadBeside loads a server while the streams of the load, if it has some, are in the
// way, and returns their MB/s, too.
func (r *runner) loadBeside(ctx context.Context, t *target, l report.Load, s load.Slice) (res load.Result, mbPerS float64, err error) {
	if l.Beside.Conns == 0 {
		res, err = r.load(ctx, t, l, s)
		return res, 0, err
	}
	for range besideTries {
		if res, mbPerS, err = r.loadBetween(ctx, t, l, s); !errors.Is(err, errAlone) {
			break
		}
	}
	return res, mbPerS, err
}

// loadBetween loads a server once, between the beginning and the end of the streams.
func (r *runner) loadBetween(ctx context.Context, t *target, l report.Load, s load.Slice) (res load.Result, mbPerS float64, err error) {
	type streamed struct {
		sample report.Sample
		ended  time.Time
		err    error
	}
	around := load.Slice{Window: 2 * (besideLead + s.Warm + s.Window)}
	around.WindowMax = around.Window
	streams := make(chan streamed, 1)
	go func() {
		res, err := r.runOn(ctx, r.streams, t, around)
		if err != nil {
			streams <- streamed{err: err}
			return
		}
		streams <- streamed{sample: sample(res, l.Beside.Size), ended: time.Now()}
	}()
	err = pause(ctx, besideLead)
	if err == nil {
		res, err = r.load(ctx, t, l, s)
	}
	loaded := time.Now()
	beside := <-streams
	switch {
	case err != nil:
	case beside.err != nil:
		err = fmt.Errorf("streams: %w", beside.err)
	case beside.ended.Before(loaded):
		err = fmt.Errorf("%w, by %v", errAlone, loaded.Sub(beside.ended))
	}
	return res, beside.sample.MBPerS, err
}
