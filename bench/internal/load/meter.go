package load

import (
	"fmt"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/blocks"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
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
	// Stop issues no more requests.
	Stop()
	// Pending is the number of requests, or of streams, that have not ended.
	Pending() int
}

// Meter keeps the accounts of one slice. Only events between open and close belong to the
// window; total counts from the first request to the last reply, for counters that cover the
// whole slice.
type Meter struct {
	now            func() time.Duration          // a clock that only runs forward
	server, client func() (time.Duration, error) // CPU time that the processes have used

	measured bool           // the window is open
	total    uint64         // replies of this slice
	bytes    uint64         // received within the window
	latency  *cli.Histogram // of this slice; its result has it

	opened                 time.Duration // when the window was
	serverThen, clientThen time.Duration // CPU times at that moment
}

// NewMeter makes a meter for the load on a server process: it reads the CPU clocks of that
// and of this process.
func NewMeter(pid int) Meter {
	base := time.Now()
	return Meter{
		now:    func() time.Duration { return time.Since(base) },
		server: func() (time.Duration, error) { return cli.ReadCPU(pid) },
		client: func() (time.Duration, error) { return cli.ReadCPU(0) },
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
	m.latency = cli.NewHistogram()
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
	for t.Stop(); t.Pending() > 0 && err == nil; {
		err = t.Turn()
	}
	res.Total = m.total
	return res, err
}

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
	res.Bytes, res.Latency = m.bytes, m.latency
	return nil
}

// Options are the connections of a client. The command line was checked.
type Options struct {
	Addr  string `json:"addr"`  // IP:port
	Nonce uint32 `json:"nonce"` // of the server's address, if it is not raw
	PID   int    `json:"pid"`   // process of the server, for its CPU clock
	Raw   bool   `json:"raw"`   // bare bytes: no handshake, no frames
	// Secure connects in secure mode: every frame is encrypted, decrypted and
	// checked here too.
	Secure bool `json:"secure,omitempty"`
	// Msgr1 speaks msgr1, without encryption of messages.
	Msgr1 bool `json:"msgr1,omitempty"`
	Conns int  `json:"conns"` // connections
	Depth int  `json:"depth"` // requests open per connection
	Size  int  `json:"size"`  // bytes of payload per request

	// Of requests to a storage server, whose Size is whole blocks:

	Kind  blocks.Kind `json:"kind,omitempty"`  // 0: requests are echoed
	Flags uint8       `json:"flags,omitempty"` // of package blocks
	Path  string      `json:"path,omitempty"`  // of the file
	File  int64       `json:"file,omitempty"`  // its size
}

// Slice is the length of a load.
type Slice struct {
	Warm    time.Duration `json:"warm"`     // at least this long before the window
	WarmMax time.Duration `json:"warm_max"` // at most this long, if by then not every open request was answered once
	Window  time.Duration `json:"window"`   // measured, at least this long
	// WindowMax bounds the window if it would have to be longer for as many
	// replies as there are open requests.
	WindowMax time.Duration `json:"window_max"`
	// Active is the number of connections that carry requests, with as many idle ones between
	// each two of them. 0: all.
	Active int `json:"active,omitempty"`
	// Rate is the number of requests per second, on all connections together, independent of
	// the replies; latencies count from the time at which a request was due. 0: each reply
	// brings the next request.
	Rate float64 `json:"rate,omitempty"`
}

// Spread chooses the active ones of all connections. Error: there are not so many.
func Spread[T any](s Slice, all []T) ([]T, error) {
	switch {
	case s.Active == 0:
		return all, nil
	case s.Active < 0 || s.Active > len(all):
		return nil, fmt.Errorf("%d of %d connections cannot be active", s.Active, len(all))
	}
	chosen := make([]T, s.Active)
	for i := range chosen {
		chosen[i] = all[i*len(all)/len(chosen)]
	}
	return chosen, nil
}

// Result are the figures of one slice. CPU times and latencies belong to the window. Bytes is
// the base of the rate: with large messages a window has few whole ones, and a fraction at both
// ends. Total counts the messages of warm-up and drain too.
type Result struct {
	Bytes     uint64         `json:"bytes"`              // received within the window
	PerReply  int            `json:"per_reply"`          // bytes of a reply on the wire
	Total     uint64         `json:"total"`              // answered from first to last
	Window    time.Duration  `json:"window"`             // real length
	ServerCPU time.Duration  `json:"server_cpu"`         // user and system time of the server process
	ClientCPU time.Duration  `json:"client_cpu"`         // the same of this process
	Restarts  int            `json:"restarts,omitempty"` // of a client that hung or aborted
	Steady    bool           `json:"steady"`             // every open request was answered once before the window
	Latency   *cli.Histogram `json:"latency"`            // from the issue to the end of the reply, of replies within the window
}
