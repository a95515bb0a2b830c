package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/uring"
)

// flockRequest is a line to a storm client; one of the fields is set.
type flockRequest struct {
	Open  *flockOptions `json:"open,omitempty"`
	Begin bool          `json:"begin,omitempty"` // echoes on all sessions, from now on
	Await *flockWindow  `json:"await,omitempty"` // a message on each, which is cut off, and the end of the storm
}

// flockOptions say which sessions to open.
type flockOptions struct {
	Addr     wire.Addr `json:"addr"`
	Sessions int       `json:"sessions"`
	Size     int       `json:"size"`
}

// flockWindow is the time that counts.
type flockWindow struct {
	At     time.Time     `json:"at"` // of the cut
	Length time.Duration `json:"length"`
}

// flockResult is what the sessions saw.
type flockResult struct {
	Calm     flockPart     `json:"calm"` // from Begin to the cut
	Storm    flockPart     `json:"storm"`
	Half     time.Duration `json:"half"` // from the cut until half of the sessions were back
	All      time.Duration `json:"all"`
	Hinted   uint64        `json:"hinted"`   // dials from a hinted port, since the last one
	Attempts uint64        `json:"attempts"` // dials, since the last one
}

// flockPart are the messages of some time: their echoes, and how long each
// took.
type flockPart struct {
	Echoes uint64        `json:"echoes"` // that came within the time
	Late   uint64        `json:"late"`   // that were due, and came later
	Length time.Duration `json:"length"`
	P50    time.Duration `json:"p50"` // of both
	P99    time.Duration `json:"p99"`
}

// flock are many lossless sessions of one process. Each has a messenger of its own,
// as sessions are told apart by that.
type flock struct {
	size     int
	sessions []*flockSession
	began    time.Time
	pacer    chan struct{} // closed when it may end
	paced    sync.WaitGroup
	hinted   uint64 // at the last count
	attempts uint64
}

// flockSession has at most one message under way.
type flockSession struct {
	f *flock
	m *control.Messenger
	c *control.Conn

	mu      sync.Mutex
	ready   chan struct{} // closed when it is connected for the first time
	running bool
	sent    time.Time     // of the message under way; zero: there is none
	idle    chan struct{} // closed when it does not run, and the last echo has come
	again   bool          // connected again, and no echo since
	back    chan struct{} // closed with the first echo behind that
	backAt  time.Time     // its time, zero before
	echoes  []flockEcho
}

type flockEcho struct {
	at   time.Time
	took time.Duration
}

// serveStormClient runs sessions until stdin closes.
func serveStormClient(mode string, stdin io.Reader, stdout io.Writer, gone func()) error {
	debug.SetGCPercent(400) // it is not what is measured
	debug.SetMaxThreads(4 * stormMax)
	f := &flock{}
	defer f.close()
	return proc.Serve(stdin, stdout, struct{}{}, func(line json.RawMessage) (any, error) {
		var req flockRequest
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, err
		}
		switch {
		case req.Open != nil:
			return nil, f.open(control.Steer(mode), req.Open)
		case req.Begin:
			f.begin()
			return nil, nil
		case req.Await != nil:
			return f.await(req.Await)
		}
		return nil, errors.New("empty request")
	}, gone)
}

func (f *flock) open(mode control.Steer, o *flockOptions) error {
	f.size = o.Size
	for i := range o.Sessions {
		s := &flockSession{f: f, ready: make(chan struct{})}
		if err := s.open(mode, o, i); err != nil {
			return err
		}
		f.sessions = append(f.sessions, s)
	}
	limit := time.NewTimer(stormPatience)
	defer limit.Stop()
	for _, s := range f.sessions {
		select {
		case <-s.ready:
		case <-limit.C:
			return fmt.Errorf("session %v does not begin: %v, %w", s.m.Name(), s.c.State(), s.c.Err())
		}
	}
	return f.countDials(&flockResult{}) // from here on
}

func (s *flockSession) open(mode control.Steer, o *flockOptions, i int) error {
	policy := control.LosslessClient()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.Client, ID: fmt.Sprint(i)}, Default: &policy, Steer: mode, HandshakeTimeout: stormPatience,
		// As little as possible of each of so many.
		Plane: dataplane.Config{Cores: 1, StallAfter: -1, Driver: uring.Config{Backend: uring.Epoll}},
	})
	if err != nil {
		return err
	}
	s.m = m
	if err := m.Start(&control.Dispatcher{
		Fast:    func(*control.Conn, *control.Message) bool { s.echo(time.Now()); return true },
		Connect: func(*control.Conn, int) { s.connected() },
	}); err != nil {
		return errors.Join(err, closeMessenger(m))
	}
	if s.c, err = m.Connect(o.Addr, wire.OSD); err != nil {
		return errors.Join(err, closeMessenger(m))
	}
	return nil
}

func (f *flock) close() {
	var all sync.WaitGroup
	for _, s := range f.sessions {
		all.Go(func() { _ = closeMessenger(s.m) }) // the process ends with it
	}
	all.Wait()
}

// begin has every session send a message each stormEvery, if its last one has
// come back.
func (f *flock) begin() {
	for _, s := range f.sessions {
		s.begin()
	}
	f.began, f.pacer = time.Now(), make(chan struct{})
	f.paced.Go(f.pace)
}

// pace spreads the messages evenly.
func (f *flock) pace() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for next := 0; ; {
		select {
		case <-f.pacer:
			return
		case now := <-tick.C:
			due := int(now.Sub(f.began) * time.Duration(len(f.sessions)) / stormEvery)
			for next = max(next, due-len(f.sessions)); next < due; next++ {
				f.sessions[next%len(f.sessions)].send()
			}
		}
	}
}

func (s *flockSession) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.again, s.backAt, s.echoes = true, false, time.Time{}, s.echoes[:0]
	s.idle, s.back = make(chan struct{}), make(chan struct{})
}

// send sends the next message, if none is under way.
func (s *flockSession) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent.IsZero() {
		s.sent = time.Now()
		_ = s.c.Send(control.NewMessage(1, nil, make([]byte, s.f.size))) // a session that is over does not come back, which is noticed
	}
}

// end has idle closed with the echo of what is under way.
func (s *flockSession) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	if s.sent.IsZero() {
		close(s.idle)
	}
}

// connected is called on the core, as echo is.
func (s *flockSession) connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ready:
		s.again = s.running
	default:
		close(s.ready)
	}
}

func (s *flockSession) echo(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.echoes = append(s.echoes, flockEcho{now, now.Sub(s.sent)})
	if s.again && s.backAt.IsZero() {
		s.again, s.backAt = false, now
		close(s.back)
	}
	s.sent = time.Time{}
	if !s.running {
		close(s.idle)
	}
}

// await waits until all sessions are back and the window is over, ends the
// echoes, and counts.
func (f *flock) await(w *flockWindow) (flockResult, error) {
	var r flockResult
	for _, s := range f.sessions {
		s.send() // at once: who gets it cuts the session
	}
	limit := time.NewTimer(stormPatience)
	defer limit.Stop()
	for _, s := range f.sessions {
		select {
		case <-s.back:
		case <-limit.C:
			return r, fmt.Errorf("session %v is not back: %v, %w", s.m.Name(), s.c.State(), s.c.Err())
		}
	}
	time.Sleep(time.Until(w.At.Add(w.Length)))
	close(f.pacer)
	f.paced.Wait()
	for _, s := range f.sessions {
		s.end()
	}
	for _, s := range f.sessions {
		select {
		case <-s.idle:
		case <-limit.C:
			return r, fmt.Errorf("session %v has no echo: %v, %w", s.m.Name(), s.c.State(), s.c.Err())
		}
	}
	f.count(w, &r)
	return r, f.countDials(&r)
}

// count sorts the echoes. To the storm belong those of all messages that were
// sent before the end of the window, if they were still due at the cut: those
// of sessions that come back later count as late, with the time that they took.
func (f *flock) count(w *flockWindow, r *flockResult) {
	calm, storm := latency.New(), latency.New()
	late := uint64(0)
	end := w.At.Add(w.Length)
	var back []time.Duration
	for _, s := range f.sessions {
		for _, e := range s.echoes {
			sent := e.at.Add(-e.took)
			switch {
			case e.at.Before(w.At):
				calm.Record(e.took)
			case sent.Before(end):
				storm.Record(e.took)
				if !e.at.Before(end) {
					late++
				}
			}
		}
		back = append(back, s.backAt.Sub(w.At))
	}
	slices.Sort(back)
	r.Half, r.All = back[len(back)/2], back[len(back)-1]
	r.Calm = flockPart{calm.Count(), 0, w.At.Sub(f.began), calm.Quantile(0.5), calm.Quantile(0.99)}
	r.Storm = flockPart{storm.Count() - late, late, w.Length, storm.Quantile(0.5), storm.Quantile(0.99)}
}

// countDials asks the connections what they counted.
func (f *flock) countDials(r *flockResult) error {
	var hinted, attempts uint64
	for _, s := range f.sessions {
		st, err := s.c.Stats()
		if err != nil {
			return err
		}
		hinted += st.Counters.Hinted
		attempts += st.Counters.Attempts
	}
	r.Hinted, r.Attempts = hinted-f.hinted, attempts-f.attempts
	f.hinted, f.attempts = hinted, attempts
	return nil
}
