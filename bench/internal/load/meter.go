package load

import (
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/perf"
)

// Traffic is measured by a Meter: requests that are sent and answered. Its methods report to
// the meter with Received and Answered.
type Traffic interface {
	// Fill issues the first requests.
	Fill() error
	// Turn waits for events, for a moment at most, and handles them.
	Turn() error
	// Warm says whether every open request was answered once in this slice.
	Warm() bool
	// Drain issues no more requests and waits for the replies that are due.
	Drain() error
}

// Meter keeps the accounts of one slice. Only events between open and close belong to the
// window; total counts from the first request to the last reply, for counters that cover the
// whole slice.
type Meter struct {
	now            func() time.Duration          // a clock that only runs forward
	server, client func() (time.Duration, error) // CPU time that the processes have used

	measured bool   // the window is open
	total    uint64 // replies of this slice
	bytes    uint64 // received within the window
	latency  *perf.Histogram

	opened                 time.Duration // when the window was
	serverThen, clientThen time.Duration // CPU times at that moment
}

// NewMeter makes a meter for the load on a server process: it reads the CPU clocks of that
// and of this process.
func NewMeter(pid int) Meter {
	base := time.Now()
	return Meter{
		now:     func() time.Duration { return time.Since(base) },
		server:  func() (time.Duration, error) { return perf.ReadCPU(pid) },
		client:  func() (time.Duration, error) { return perf.ReadCPU(0) },
		latency: perf.NewHistogram(),
	}
}

// Now is a clock that only runs forward.
func (m *Meter) Now() time.Duration { return m.now() }

// Received counts bytes that a server has sent.
func (m *Meter) Received(n int) {
	if m.measured {
		m.bytes += uint64(n)
	}
}

// Answered counts a reply that came so long after its request was issued.
func (m *Meter) Answered(took time.Duration) {
	m.total++
	if m.measured {
		m.latency.Record(took)
	}
}

// Run measures one slice. enough is the wanted number of replies in the window, which becomes
// longer for them, up to its maximum.
func (m *Meter) Run(s Slice, t Traffic, enough uint64) (res Result, err error) {
	m.measured, m.total, m.bytes = false, 0, 0
	m.latency.Reset()
	if err := t.Fill(); err != nil {
		return res, err
	}
	for start := m.now(); ; {
		warm := m.now() - start
		if warm >= s.Warm && (t.Warm() || warm >= max(s.Warm, s.WarmMax)) {
			break
		}
		if err := t.Turn(); err != nil {
			return res, err
		}
	}
	res.Steady = t.Warm()
	if err := m.open(); err != nil {
		return res, err
	}
	for {
		open := m.now() - m.opened
		if open >= s.Window && (m.latency.Count() >= enough || open >= s.WindowMax) {
			break
		}
		if err := t.Turn(); err != nil {
			return res, err
		}
	}
	if err := m.close(&res); err != nil {
		return res, err
	}
	err = t.Drain()
	res.Total = m.total
	return res, err
}

// open begins the window.
func (m *Meter) open() (err error) {
	if m.serverThen, err = m.server(); err != nil {
		return err
	}
	if m.clientThen, err = m.client(); err != nil {
		return err
	}
	m.opened, m.measured = m.now(), true
	return nil
}

// close ends the window and fills in its figures.
func (m *Meter) close(res *Result) (err error) {
	res.Window, m.measured = m.now()-m.opened, false
	if res.ServerCPU, err = m.server(); err != nil {
		return err
	}
	if res.ClientCPU, err = m.client(); err != nil {
		return err
	}
	res.ServerCPU -= m.serverThen
	res.ClientCPU -= m.clientThen
	res.Bytes, res.Latency = m.bytes, m.latency.Clone()
	return nil
}
