package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// topFrame is what happened between two snapshots.
type topFrame struct {
	Time     time.Time `json:"time"`
	PID      int       `json:"pid"`
	Name     string    `json:"name"`
	Addrs    string    `json:"addrs"`
	Backend  string    `json:"backend"`
	Steering string    `json:"steering"`
	Open     int       `json:"open"`
	HalfOpen int       `json:"half_open"`
	Made     uint64    `json:"made"`
	InFlight int64     `json:"in_flight"`
	Seconds  float64   `json:"seconds"`
	Total    topRates  `json:"total"`
	Cores    []topCore `json:"cores"`
	Conns    []topConn `json:"conns"`
}

type topRates struct {
	In    float64 `json:"in_per_s"` // messages
	Out   float64 `json:"out_per_s"`
	MBIn  float64 `json:"mb_in_per_s"` // 10^6 bytes
	MBOut float64 `json:"mb_out_per_s"`
}

type topCore struct {
	Core  int     `json:"core"`
	Conns int64   `json:"conns"`
	CPU   float64 `json:"cpu"` // share of a CPU that the core's thread took; -1: not known
	topRates
	Writes    float64 `json:"writes_per_s"`
	Syscalls  float64 `json:"syscalls_per_s"`
	InFlight  uint64  `json:"in_flight"` // operations that the kernel has: the depth of the ring
	Overflows uint64  `json:"overflows"`
	Rearms    uint64  `json:"rearms"`
	// Receive is the receive mode; with auto, ByBuffers of the connections receive into
	// the ring's buffers now.
	Receive   string `json:"receive"`
	ByBuffers int64  `json:"by_buffers"`
	Paused    uint64 `json:"paused"` // times that a throttle stopped a reader
	Stalls    uint64 `json:"stalls"`
	Stalled   bool   `json:"stalled"`
	State     string `json:"state,omitempty"` // running, draining or failed
}

type topConn struct {
	ID       uint64 `json:"id"`
	Peer     string `json:"peer"`
	Entity   string `json:"entity,omitempty"` // its name
	Remote   string `json:"remote,omitempty"` // address of its socket
	State    string `json:"state"`
	Policy   string `json:"policy"`
	Protocol string `json:"protocol"`
	Mode     string `json:"mode"`
	Core     int    `json:"core"`
	Intended int    `json:"intended"` // core
	By       string `json:"by"`       // what chose that
	Reason   string `json:"reason,omitempty"`
	topRates
	Queued     int    `json:"queued"`
	Sent       int    `json:"sent"`
	Held       int64  `json:"held_bytes"` // of both
	AckLag     uint64 `json:"ack_lag"`
	Throttled  bool   `json:"throttled"`
	Receive    string `json:"receive,omitempty"` // buffers or ready
	ReceiveWhy string `json:"receive_why,omitempty"`
	InSeq      uint64 `json:"in_seq"`
	OutSeq     uint64 `json:"out_seq"`
	Reconnects uint64 `json:"reconnects"`
	Error      string `json:"error,omitempty"`

	members int // connections of a group
}

// newTopFrame compares two snapshots. Those of different processes, as after a
// hand-over, have nothing in common.
func newTopFrame(before, now *control.Snapshot) *topFrame {
	m := &now.Messenger
	f := &topFrame{
		Time: now.Time, PID: now.PID, Name: m.Name, Addrs: m.Addrs, Backend: m.Backend, Steering: "none",
		Open: m.Open, HalfOpen: m.HalfOpen, Made: m.Counters.Conns, InFlight: m.InFlight,
		Cores: []topCore{}, Conns: []topConn{},
	}
	if m.Steering.Active {
		f.Steering = strings.Join(m.Steering.Rules, ",")
	}
	if before.PID != now.PID {
		before = now
	}
	f.Seconds = round(now.Time.Sub(before.Time).Seconds(), 3)
	for i := range m.Cores {
		old := dataplane.CoreStats{} // of a core that was added meanwhile
		for j := range before.Messenger.Cores {
			if b := &before.Messenger.Cores[j]; b.Core == m.Cores[i].Core {
				old = *b
			}
		}
		c := f.core(&old, &m.Cores[i])
		f.Total.add(c.topRates)
		f.Cores = append(f.Cores, c)
	}
	olds := make(map[uint64]*control.ConnStats, len(before.Conns))
	for i := range before.Conns {
		olds[before.Conns[i].ID] = &before.Conns[i]
	}
	for i := range now.Conns {
		old := olds[now.Conns[i].ID]
		if old == nil {
			old = &control.ConnStats{} // it is younger than the interval
		}
		f.Conns = append(f.Conns, f.conn(old, &now.Conns[i]))
	}
	return f
}

// per is the rate of a counter. One that ran backwards, or a stalled core's
// that is not known, did not move.
func (f *topFrame) per(before, now uint64) float64 {
	if f.Seconds <= 0 || now < before {
		return 0
	}
	return round(float64(now-before)/f.Seconds, 1)
}

func (f *topFrame) core(before, now *dataplane.CoreStats) topCore {
	c := topCore{
		Core: now.Core, Conns: now.Handlers, CPU: -1, Stalls: now.Stalls, Stalled: now.Stalled, State: now.State,
		topRates: topRates{
			In: f.per(before.MessagesIn, now.MessagesIn), Out: f.per(before.MessagesOut, now.MessagesOut),
			MBIn: round(f.per(before.BytesIn, now.BytesIn)/1e6, 3), MBOut: round(f.per(before.BytesOut, now.BytesOut)/1e6, 3),
		},
		Writes: f.per(before.Writes, now.Writes), Syscalls: f.per(before.Driver.Syscalls, now.Driver.Syscalls),
		InFlight: now.Driver.InFlight, Overflows: now.Driver.Overflows, Rearms: now.Rearms, Receive: now.Receive, ByBuffers: now.Receiving, Paused: now.Paused,
	}
	if now.CPU > 0 && now.CPU >= before.CPU && f.Seconds > 0 {
		c.CPU = round((now.CPU-before.CPU).Seconds()/f.Seconds, 3)
	}
	return c
}

func (f *topFrame) conn(before, now *control.ConnStats) topConn {
	a, b := &before.IO, &now.IO
	c := topConn{
		ID: now.ID, Peer: now.Peer, Entity: now.Entity, Remote: now.Remote, State: now.State, Policy: now.Policy, Protocol: now.Protocol, Mode: now.Mode,
		Core: now.Placement.Core, Intended: now.Placement.Intended, By: now.Placement.By, Reason: now.Placement.Reason,
		topRates: topRates{
			In: f.per(a.MessagesIn, b.MessagesIn), Out: f.per(a.MessagesOut, b.MessagesOut),
			MBIn: round(f.per(a.BytesIn, b.BytesIn)/1e6, 3), MBOut: round(f.per(a.BytesOut, b.BytesOut)/1e6, 3),
		},
		Queued: b.Queued, Sent: b.Sent, Held: now.HeldBytes, AckLag: b.AckLag, Throttled: b.Throttled, Receive: string(b.Receive), ReceiveWhy: string(b.ReceiveWhy), InSeq: b.InSeq, OutSeq: b.OutSeq, Error: now.Error,
	}
	if n := now.Counters.Ready; n > 0 {
		c.Reconnects = n - 1
	}
	return c
}

func (r *topRates) add(o topRates) {
	r.In, r.Out = round(r.In+o.In, 1), round(r.Out+o.Out, 1)
	r.MBIn, r.MBOut = round(r.MBIn+o.MBIn, 3), round(r.MBOut+o.MBOut, 3)
}

// topOrder is an order of connections.
type topOrder string

const orderRate topOrder = "rate"

var topOrders = []struct {
	name topOrder
	less func(a, b *topConn) int
}{
	{orderRate, func(a, b *topConn) int { return cmp.Compare(b.In+b.Out, a.In+a.Out) }},
	{"bytes", func(a, b *topConn) int { return cmp.Compare(b.MBIn+b.MBOut, a.MBIn+a.MBOut) }},
	{"queue", func(a, b *topConn) int { return cmp.Compare(b.Queued+b.Sent, a.Queued+a.Sent) }},
	{"lag", func(a, b *topConn) int { return cmp.Compare(b.AckLag, a.AckLag) }},
	{"core", func(a, b *topConn) int { return cmp.Compare(a.Core, b.Core) }},
	{"peer", func(a, b *topConn) int { return cmp.Or(cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Peer, b.Peer)) }},
	{"id", func(a, b *topConn) int { return 0 }},
}

func (o *topOrder) String() string {
	if o == nil {
		return ""
	}
	return string(*o)
}

// Set parses --sort.
func (o *topOrder) Set(s string) error {
	if topOrder(s).index() < 0 {
		return fmt.Errorf("want rate, bytes, queue, lag, core, peer or id")
	}
	*o = topOrder(s)
	return nil
}

func (o topOrder) index() int {
	for i := range topOrders {
		if topOrders[i].name == o {
			return i
		}
	}
	return -1
}

// step is the order that is n further.
func (o topOrder) step(n int) topOrder {
	return topOrders[(o.index()+n+len(topOrders))%len(topOrders)].name
}

// sort orders the connections, equal ones by age.
func (f *topFrame) sort(o topOrder) {
	less := topOrders[o.index()].less
	slices.SortFunc(f.Conns, func(a, b topConn) int { return cmp.Or(less(&a, &b), cmp.Compare(a.ID, b.ID)) })
}
