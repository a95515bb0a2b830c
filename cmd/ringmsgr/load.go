package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/cmd/shared/procstat"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// load is one run of send: its messengers, connections and lanes. Connection i
// carries lane i.
type load struct {
	s          *sender
	e          env
	to         wire.Addr
	peer       wire.EntityType
	pattern    pattern
	policy     control.Policy
	messengers []*control.Messenger
	conns      []*control.Conn
	lanes      []*lane
	running    atomic.Int64  // lanes that have not ended
	stopped    atomic.Bool   // finished is closed
	finished   chan struct{} // closed when all lanes are done, or one has failed
	elapsed    time.Duration
}

// errStalled ends a run in which nothing moves any more.
var errStalled = errors.New("no echo came")

// messengersFor is how many messengers the connections need: sessions are found
// by the address of their messenger, so lossless ones cannot share it.
func (l *load) messengersFor(cfg *control.Config) int {
	if cfg.Default.Lossy {
		return 1
	}
	return l.s.conns
}

func (l *load) open(cfg control.Config) error {
	l.policy = *cfg.Default
	for range l.messengersFor(&cfg) {
		m, err := l.s.open(cfg, &control.Dispatcher{
			Fast: func(c *control.Conn, m *control.Message) bool {
				if lane, ok := c.UserData().(*lane); ok {
					lane.echo(m)
				}
				return true
			},
			Reset:       func(c *control.Conn, _ bool) { lost(c, c.Err()) },
			RemoteReset: func(c *control.Conn) { lost(c, errForgotten) },
		})
		if err != nil {
			return err
		}
		l.messengers = append(l.messengers, m)
	}
	return nil
}

// errForgotten: what was under way on a lossless session is gone.
var errForgotten = errors.New("the peer has lost the session")

func lost(c *control.Conn, err error) {
	if lane, ok := c.UserData().(*lane); ok {
		lane.fail(err)
	}
}

// connect waits for all connections. Lossy ones share a messenger, so that they
// cannot be found by their address, and do not repeat an attempt.
func (l *load) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.s.timeout)
	defer cancel()
	var opts []control.ConnectOption
	if l.policy.Lossy {
		opts = append(opts, control.Anonymous(), control.Once())
	}
	for i := range l.s.conns {
		c, err := l.messengers[i%len(l.messengers)].Connect(l.to, l.peer, opts...)
		if err != nil {
			return err
		}
		if !l.policy.Lossy {
			// A session that has nothing to send stands by after a failed attempt.
			c.Keepalive()
		}
		l.conns = append(l.conns, c)
	}
	for _, c := range l.conns {
		if err := waitReady(ctx, c, l.policy.Lossy); err != nil {
			return err
		}
	}
	return nil
}

// transfer sends everything and waits for the echoes.
func (l *load) transfer(ctx context.Context) error {
	s := l.s
	l.running.Store(int64(s.conns))
	for i := range l.conns {
		total := s.messages / uint64(s.conns)
		if uint64(i) < s.messages%uint64(s.conns) {
			total++
		}
		l.lanes = append(l.lanes, newLane(i, total, s.depth, int(s.size), l.pattern, l.e.now, l.laneEnded))
	}
	begin := l.e.now()
	for i, lane := range l.lanes {
		lane.start(l.conns[i])
		// No event has told of a connection that ended before it had a
		// lane.
		if l.conns[i].State() == control.StateClosing {
			lane.fail(l.conns[i].Err())
		}
	}
	err := l.watch(ctx, begin)
	l.elapsed = l.e.now().Sub(begin)
	for _, lane := range l.lanes {
		lane.fail(err) // those that run still; nil: there are none
		if err == nil {
			err = lane.err
		}
	}
	return err
}

// laneEnded runs under the lane's lock.
func (l *load) laneEnded(lane *lane) {
	if (lane.err != nil || l.running.Add(-1) == 0) && !l.stopped.Swap(true) {
		close(l.finished)
	}
}

// watch waits for the end, writes progress and notices when nothing moves.
func (l *load) watch(ctx context.Context, begin time.Time) error {
	tick := time.NewTicker(min(time.Second, l.s.timeout))
	defer tick.Stop()
	var enough <-chan time.Time
	if l.s.duration > 0 {
		timer := time.NewTimer(l.s.duration)
		defer timer.Stop()
		enough = timer.C
	}
	seen, moved := uint64(0), begin
	for {
		select {
		case <-l.finished:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-enough:
			for _, lane := range l.lanes {
				lane.stop()
			}
			continue
		case <-tick.C:
		}
		switch now, got := l.e.now(), l.verified(); {
		case got > seen:
			seen, moved = got, now
		case now.Sub(moved) >= l.s.timeout:
			return l.stalled()
		}
	}
}

// stalled says why, if a connection knows.
func (l *load) stalled() error {
	err := fmt.Errorf("%w for %v", errStalled, l.s.timeout)
	for _, c := range l.conns {
		if e := c.Err(); e != nil {
			return fmt.Errorf("%w: %w", err, e)
		}
	}
	return err
}

func (l *load) verified() (n uint64) {
	for _, lane := range l.lanes {
		n += lane.progress()
	}
	return n
}

// report is the result. All lanes have ended.
func (l *load) report(failed error) *sent {
	info := l.conns[0].Info()
	r := &sent{
		negotiated: negotiatedBy(l.messengers[0], info), Policy: l.policy.Name, Lossy: info.Lossy,
		Conns: l.s.conns, Depth: l.s.depth, Size: int(l.s.size), Seconds: round(l.elapsed.Seconds(), 6),
	}
	if l.s.duration == 0 {
		r.Messages = l.s.messages
	}
	times := latency.New()
	for i, lane := range l.lanes {
		lane.mu.Lock()
		if l.s.duration > 0 {
			r.Messages += lane.next // what was sent is what was asked for
		}
		r.Verified += lane.got
		r.Duplicates += lane.duplicates
		r.Losses += lane.losses
		r.Corrupt += lane.corrupt
		times.Add(lane.times)
		lane.mu.Unlock()
		if st, err := l.conns[i].Stats(); err == nil && st.Counters.Ready > 0 {
			r.Reconnects += st.Counters.Ready - 1
		}
	}
	r.Rate = round(float64(r.Verified)/l.elapsed.Seconds(), 1)
	r.Bandwidth = round(float64(r.Verified)*float64(l.s.size)/1e6/l.elapsed.Seconds(), 3)
	if times.Count() > 0 {
		r.Latency = &quantiles{
			toMicros(times.Min()), toMicros(times.Quantile(0.5)), toMicros(times.Quantile(0.9)),
			toMicros(times.Quantile(0.99)), toMicros(times.Quantile(0.999)), toMicros(times.Max()),
		}
	}
	if memory, err := procstat.ReadMemory(0); err == nil {
		r.Memory, r.Peak = memory.Resident, memory.Peak
	}
	if failed != nil {
		f := l.failure(failed)
		r.Error, r.Stage = f.Error, f.Stage
	}
	return r
}

// close ends the messengers; each takes its time, so they end together.
func (l *load) close() error {
	errs := make(chan error)
	for _, m := range l.messengers {
		go func() { errs <- scope.Close(m) }()
	}
	var all []error
	for range l.messengers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
