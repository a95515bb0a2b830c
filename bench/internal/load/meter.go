package load

import (
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/latency"
)

// traffic is what a meter measures: requests that are sent and answered. Its
// functions report to the meter with received and answered.
type traffic interface {
	// fill issues the first requests.
	fill() error
	// turn waits for events, for a moment at most, and handles them.
	turn() error
	// warm says whether every open request was answered once in this slice.
	warm() bool
	// drain issues no more requests and waits for the replies that are due.
	drain() error
}

// meter keeps the accounts of one slice. Only what happens between open and
// close belongs to the window; total counts from the first request to the last
// reply, for what can be counted over the whole slice alone.
type meter struct {
	now            func() time.Duration          // a clock that only runs forward
	server, client func() (time.Duration, error) // CPU time that the processes have used

	measured bool   // the window is open
	total    uint64 // replies of this slice
	bytes    uint64 // received within the window
	latency  *latency.Histogram

	opened                 time.Duration // when the window was
	serverThen, clientThen time.Duration // CPU times at that moment
}

// received counts bytes that a server has sent.
func (m *meter) received(n int) {
	if m.measured {
		m.bytes += uint64(n)
	}
}

// answered counts a reply that came so long after its request was issued.
func (m *meter) answered(took time.Duration) {
	m.total++
	if m.measured {
		m.latency.Record(took)
	}
}

// run loads the server for one slice. enough is how many replies the window
// should have, if it can without becoming longer than its maximum.
func (m *meter) run(s Slice, t traffic, enough uint64) (res Result, err error) {
	m.measured, m.total, m.bytes = false, 0, 0
	m.latency.Reset()
	if err := t.fill(); err != nil {
		return res, err
	}
	for start := m.now(); ; {
		warm := m.now() - start
		if warm >= s.Warm && (t.warm() || warm >= max(s.Warm, s.WarmMax)) {
			break
		}
		if err := t.turn(); err != nil {
			return res, err
		}
	}
	res.Steady = t.warm()
	if err := m.open(); err != nil {
		return res, err
	}
	for {
		open := m.now() - m.opened
		if open >= s.Window && (m.latency.Count() >= enough || open >= s.WindowMax) {
			break
		}
		if err := t.turn(); err != nil {
			return res, err
		}
	}
	if err := m.close(&res); err != nil {
		return res, err
	}
	err = t.drain()
	res.Total = m.total
	return res, err
}

// open begins the window.
func (m *meter) open() (err error) {
	if m.serverThen, err = m.server(); err != nil {
		return err
	}
	if m.clientThen, err = m.client(); err != nil {
		return err
	}
	m.opened, m.measured = m.now(), true
	return nil
}

// close ends it and fills in what belongs to it.
func (m *meter) close(res *Result) (err error) {
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
