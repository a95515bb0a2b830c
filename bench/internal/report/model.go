// Package report holds the results of the benchmark: every single measurement,
// the medians and ratios computed from them, and their forms as a table for
// people and as JSON for programs. It measures nothing.
//
// Ratios are paired: each compares two servers in the same round, so that disturbances of the
// whole machine cancel out. A ratio is the median of the rounds; the report adds the smallest
// and the largest.
//
// The summary accepts a difference if all rounds agree on its sign, and it is more than a machine differs from itself.
package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// File are the results of one run of the benchmark.
type File struct {
	Started time.Time `json:"started"`
	Machine Machine   `json:"machine"`
	Command []string  `json:"command"` // arguments of the run
	Base    string    `json:"base"`    // the server that the ratios are relative to
	Mode    string    `json:"mode"`    // of the connections: "crc" or "secure"
	Servers []Server  `json:"servers"`
	Cells   []Cell    `json:"cells"`
	Notes   []string  `json:"notes,omitempty"` // parts that the run left out, with the reason
}

// Read reads the results that a run has written.
func Read(path string) (*File, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{}
	if err := json.Unmarshal(p, f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Machine says where the figures come from.
type Machine struct {
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"` // that this process may use
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the commit is not all
}

// Server is one of the programs that were compared.
type Server struct {
	Name     string            `json:"name"`
	About    string            `json:"about"`
	Settings map[string]string `json:"settings,omitempty"` // as reported by the server, for example its backend
}

// Cell is one kind of load with the results of each server.
type Cell struct {
	Load    Load     `json:"load"`
	Results []Result `json:"results"`
}

// Load is one kind of load.
type Load struct {
	What    string `json:"what,omitempty"` // that requests do; empty: they are echoed
	Size    int    `json:"size"`           // bytes of payload
	Conns   int    `json:"conns"`          // connections
	Depth   int    `json:"depth"`          // requests open on each
	GCLoad  bool   `json:"gc_load,omitempty"`
	Clients bool   `json:"clients,omitempty"` // they are compared, not servers
	// Active is the number of connections that carry requests; 0: all.
	Active int `json:"active,omitempty"`
	// Rate is the number of requests per second, independent of the replies; 0: each reply
	// brings the next request.
	Rate int `json:"rate,omitempty"`
}

// String names the load by its payload, connections and depth, as "4 KiB 16x16".
func (l Load) String() string {
	s := fmt.Sprintf("%s %dx%d", cli.Bytes(int64(l.Size)), l.Conns, l.Depth)
	if l.What != "" {
		s = l.What + " " + s
	}
	if l.Active > 0 && l.Active < l.Conns {
		s += fmt.Sprintf(" %d active", l.Active)
	}
	if l.Rate > 0 {
		s += fmt.Sprintf(" %d/s", l.Rate)
	}
	if l.GCLoad {
		s += " gc"
	}
	return s
}

// Result are the figures of one server in one cell. Samples are in the order of their rounds; a
// round that could not be measured is missing from all servers of the cell.
type Result struct {
	Server   string         `json:"server"`
	Samples  []Sample       `json:"samples"`
	Median   Sample         `json:"median"` // of each figure by itself
	Ratio    *Ratios        `json:"ratio,omitempty"`
	Syscalls Syscalls       `json:"syscalls"`
	Latency  *cli.Histogram `json:"latency,omitempty"` // of all rounds together
	// BytesPerConn is the resident memory of the server for an idle connection, without the
	// kernel's own memory; 0: it was not measured.
	BytesPerConn int64 `json:"bytes_per_conn,omitempty"`
}

// Sample is one measured slice of time. CPU figures are user and system time
// of the whole process. Latencies are 0 if no reply fell into the window.
type Sample struct {
	Round         int     `json:"round"`
	Order         int     `json:"order"`    // place within the round
	Messages      float64 `json:"messages"` // with fractions at both ends
	Replies       uint64  `json:"replies"`  // complete ones: those with a latency
	WindowS       float64 `json:"window_s"`
	MessagesPerS  float64 `json:"messages_per_s"`
	MBPerS        float64 `json:"mb_per_s"` // payload one way, 10^6 bytes
	P50US         float64 `json:"p50_us"`
	P99US         float64 `json:"p99_us"`
	P999US        float64 `json:"p99_9_us"`
	ServerCPUUS   float64 `json:"server_cpu_us_per_message"`
	ClientCPUUS   float64 `json:"client_cpu_us_per_message"`
	UnsteadyStart bool    `json:"unsteady_start,omitempty"` // not every open request was answered before the window
}

// Syscalls are the system calls of the server per message.
type Syscalls struct {
	PerMessage []float64 `json:"per_message,omitempty"` // one per counted slice
	Median     float64   `json:"median"`
}

// Known says whether there is a figure.
func (s Syscalls) Known() bool { return len(s.PerMessage) > 0 }

// Ratios compare a server with the base, round by round.
type Ratios struct {
	Rate Ratio `json:"rate"` // messages per second; above 1 is better
	P50  Ratio `json:"p50"`  // below 1 is better, as in the following
	P99  Ratio `json:"p99"`
	CPU  Ratio `json:"server_cpu"` // of the side that is compared
}

// Ratio is the median of the ratios of all rounds, and how they lie around it.
type Ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Rounds int     `json:"rounds"`
	// Spread is the part of the median by which half of the rounds differ from it
	// at most. A single round that was disturbed does not change it.
	Spread float64 `json:"spread"`
}

// Median returns the median of values, 0 if there are none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Compute fills in the medians of a cell, and its ratios to base, from its samples.
func (c *Cell) Compute(base string) {
	var baseSamples []Sample
	for i := range c.Results {
		r := &c.Results[i]
		r.Median = medians(r.Samples)
		r.Syscalls.Median = Median(r.Syscalls.PerMessage)
		if r.Server == base {
			baseSamples = r.Samples
		}
	}
	for i := range c.Results {
		r := &c.Results[i]
		r.Ratio = nil
		if r.Server != base && len(baseSamples) > 0 && len(r.Samples) > 0 {
			r.Ratio = &Ratios{
				Rate: ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.MessagesPerS }),
				P50:  ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.P50US }),
				P99:  ratio(r.Samples, baseSamples, func(s Sample) float64 { return s.P99US }),
				CPU:  ratio(r.Samples, baseSamples, c.Load.CPU),
			}
		}
	}
}

// CPU is the CPU time for each message, in microseconds, of the side that is compared.
func (l Load) CPU(s Sample) float64 {
	if l.Clients {
		return s.ClientCPUUS
	}
	return s.ServerCPUUS
}

func medians(samples []Sample) Sample {
	var m Sample
	for _, figure := range []func(*Sample) *float64{
		func(s *Sample) *float64 { return &s.Messages },
		func(s *Sample) *float64 { return &s.WindowS },
		func(s *Sample) *float64 { return &s.MessagesPerS },
		func(s *Sample) *float64 { return &s.MBPerS },
		func(s *Sample) *float64 { return &s.P50US },
		func(s *Sample) *float64 { return &s.P99US },
		func(s *Sample) *float64 { return &s.P999US },
		func(s *Sample) *float64 { return &s.ServerCPUUS },
		func(s *Sample) *float64 { return &s.ClientCPUUS },
	} {
		values := make([]float64, len(samples))
		for i := range samples {
			values[i] = *figure(&samples[i])
		}
		*figure(&m) = Median(values)
	}
	for i, s := range samples {
		if i == 0 || s.Replies < m.Replies {
			m.Replies = s.Replies // the smallest number: it limits the trust in the quantiles
		}
	}
	m.UnsteadyStart = slices.ContainsFunc(samples, func(s Sample) bool { return s.UnsteadyStart })
	return m
}

// ratio compares samples of the same round, wherever they stand.
func ratio(samples, base []Sample, figure func(Sample) float64) Ratio {
	var values []float64
	for _, s := range samples {
		i := slices.IndexFunc(base, func(b Sample) bool { return b.Round == s.Round })
		if i < 0 {
			continue
		}
		if q := figure(s) / figure(base[i]); !math.IsNaN(q) && !math.IsInf(q, 0) {
			values = append(values, q)
		}
	}
	if len(values) == 0 {
		return Ratio{}
	}
	r := Ratio{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), Rounds: len(values)}
	off := make([]float64, len(values))
	for i, v := range values {
		off[i] = math.Abs(v - r.Median)
	}
	if r.Median > 0 { // else there is no part of it, and JSON has no number for that
		r.Spread = Median(off) / r.Median
	}
	return r
}
