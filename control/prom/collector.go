package prom

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
)

// Collector shows the statistics of one messenger (prometheus.Collector). Any goroutine
// may use it; several of them can be in one registry if their messengers have different
// names.
type Collector struct {
	m    *control.Messenger // nil: Remote has the statistics
	name string

	up, info, state, latency, steered *prometheus.Desc
	messenger, counters, cores        []field
	conns                             connMetrics // nil: not wanted
}

// Option changes a Collector.
type Option func(*Collector)

// Conns adds sums over the connections, by the type of the peer and the state: their queues
// and the memory that they hold. Each scrape asks every connection; it is meant for hundreds
// of connections.
func Conns() Option { return func(c *Collector) { c.conns = newConnMetrics(c.labels()) } }

// New makes a collector of m, which it does not shut down.
func New(m *control.Messenger, opts ...Option) *Collector {
	c := named(m.Name().String(), opts...)
	c.m = m
	return c
}

const upHelp = "Whether the messenger runs: 0 after its shutdown."

// named makes a collector of a messenger with a name.
func named(name string, opts ...Option) *Collector {
	c := &Collector{name: name}
	labels := c.labels()
	desc := func(name, help string, of ...string) *prometheus.Desc {
		return prometheus.NewDesc("ringmsgr_"+name, help, of, labels)
	}
	c.up = desc("up", upHelp)
	c.info = desc("info", "Always 1; the labels are the I/O engine, and the reason if it is not io_uring.", "backend", "fallback")
	c.state = desc("core_state", "Always 1; the label is the state: running, stalled, draining, failed or stopped.", "core", "state")
	c.latency = desc("core_latency_seconds",
		"Sampled latencies: queue is from Send to a write, dispatch in the dispatchers, ack from a write to the ack.", "core", "of")
	c.steered = desc("steered_total", "New connections by the rule that chose their core.", "addr", "rule")
	of := func(prefix, help string, names []string, t reflect.Type) []field {
		return (&set{
			prefix: prefix, labels: labels, names: names, help: help,
			gauges: map[string]bool{"driver_in_flight": true, "throttled_for_ns": true},
			skip:   map[string]bool{"core": true, "latency": true, "stalled": true, "counters": true, "steering": true},
		}).of(t)
	}
	c.messenger = of("ringmsgr", "Messenger", nil, reflect.TypeFor[control.Stats]())
	c.counters = of("ringmsgr", "Messenger", nil, reflect.TypeFor[control.Counters]())
	c.cores = of("ringmsgr_core", "Core", []string{"core"}, reflect.TypeFor[dataplane.CoreStats]())
	for _, o := range opts {
		o(c)
	}
	return c
}

func (c *Collector) labels() prometheus.Labels {
	return prometheus.Labels{"messenger": c.name}
}

// Handler serves the metrics of m, of the Go runtime and of the process.
func Handler(m *control.Messenger, opts ...Option) http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(New(m, opts...), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{})
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{c.up, c.info, c.state, c.latency, c.steered}, c.conns...) {
		out <- d
	}
	for _, list := range [][]field{c.messenger, c.counters, c.cores} {
		for _, f := range list {
			out <- f.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	st, err := c.m.Stats()
	c.show(out, &st, err)
	if c.conns != nil && err == nil {
		c.conns.collect(out, c.m)
	}
}

// show sends all metrics but those of connections. With an error the messenger does not run,
// and st has its last statistics.
func (c *Collector) show(out chan<- prometheus.Metric, st *control.Stats, err error) {
	up := 1.0
	if err != nil {
		up = 0
	}
	out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, up)
	out <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, st.Backend, st.Fallback)
	collect(out, reflect.ValueOf(st).Elem(), c.messenger)
	collect(out, reflect.ValueOf(&st.Counters).Elem(), c.counters)
	for i := range st.Cores {
		core := &st.Cores[i]
		name := strconv.Itoa(core.Core)
		state := core.State
		if core.Stalled {
			state = "stalled"
		}
		out <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, 1, name, state)
		if core.Stalled || core.Failed != "" { // its counters are not known, and are not 0
			continue
		}
		collect(out, reflect.ValueOf(core).Elem(), c.cores, name)
		l := &core.Latency
		for of, h := range map[string]*dataplane.Histogram{"queue": &l.Queue, "dispatch": &l.Dispatch, "ack": &l.Ack} {
			out <- histogram(c.latency, h, name, of)
		}
	}
	for _, g := range st.Steering.Groups {
		c.collectSteering(out, g.Addr, &g.Counters)
	}
}

func (c *Collector) collectSteering(out chan<- prometheus.Metric, addr string, n *bpf.Counters) {
	total := n.Total()
	for rule, count := range map[string]uint64{
		"table_addrport": total.AddrPort.Selected, "table_addr": total.Addr.Selected,
		"hint": total.Hint.Selected, "cpu": total.CPU.Selected, "hash": n.Hash,
	} {
		out <- prometheus.MustNewConstMetric(c.steered, prometheus.CounterValue, float64(count), addr, rule)
	}
}

// histogram has one bucket for each doubling.
func histogram(desc *prometheus.Desc, h *dataplane.Histogram, values ...string) prometheus.Metric {
	buckets := make(map[float64]uint64)
	n := uint64(0)
	for i, count := range h.Counts {
		n += count
		if bound := h.Bound(i); bound&(bound-1) == 0 && bound > 0 {
			buckets[bound.Seconds()] = n
		}
	}
	return prometheus.MustNewConstHistogram(desc, n, float64(h.Sum)/float64(time.Second), buckets, values...)
}

// remoteTimeout bounds how long a scrape waits for the statistics of another process.
const remoteTimeout = 5 * time.Second

// Remote shows the statistics of a messenger in another process, which serves them at a
// Unix socket (control.Messenger.ServeStats). Any goroutine may use it.
//
// A scrape fails until the process was reached once. When the process is gone later,
// ringmsgr_up is 0.
type Remote struct {
	path string
	opts []Option

	mu   sync.Mutex
	last *Collector // knows the messenger's name; nil: not reached yet
	pid  int        // of the process, the last time it was reached
}

// NewRemote makes a collector of the statistics at path, the argument of ServeStats.
func NewRemote(path string, opts ...Option) *Remote { return &Remote{path: path, opts: opts} }

// PID is the id of the process in the last scrape; 0 before the first.
func (r *Remote) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

// Describe implements prometheus.Collector. It describes nothing: all metrics have the name
// of the messenger, which only a scrape brings.
func (r *Remote) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r *Remote) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), remoteTimeout)
	defer cancel()
	s, err := control.ReadStats(ctx, r.path)
	switch c := r.reached(s); {
	case err == nil:
		c.show(out, &s.Messenger, nil)
		if c.conns != nil {
			c.conns.show(out, s.Conns)
		}
	case c != nil:
		out <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 0)
	default:
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("ringmsgr_up", upHelp, nil, nil), err)
	}
}

// reached returns the collector for a snapshot, or the last one without it.
func (r *Remote) reached(s *control.Snapshot) *Collector {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == nil {
		return r.last
	}
	r.pid = s.PID
	if r.last == nil || r.last.name != s.Messenger.Name {
		r.last = named(s.Messenger.Name, r.opts...)
	}
	return r.last
}

// connMetrics are sums over the connections with peers of one type, in one state.
type connMetrics []*prometheus.Desc // of connSums

// connSums are the sums, without the prefix of their names.
var connSums = [...]struct {
	name, help string
	of         func(*control.ConnStats) int64
}{
	{"connections", "Connections with peers.", func(*control.ConnStats) int64 { return 1 }},
	{"queued_messages", "Messages that wait to be sent.", func(c *control.ConnStats) int64 { return int64(c.IO.Queued) }},
	{"unacknowledged_messages", "Messages sent and not acknowledged.", func(c *control.ConnStats) int64 { return int64(c.IO.Sent) }},
	{"held_bytes", "Payload held to be sent, or until it is acknowledged.", func(c *control.ConnStats) int64 { return c.HeldBytes }},
	{"received_bytes", "Received payload that is not released.", func(c *control.ConnStats) int64 { return c.IO.Reserved }},
}

func newConnMetrics(labels prometheus.Labels) connMetrics {
	c := make(connMetrics, len(connSums))
	for i, s := range connSums {
		c[i] = prometheus.NewDesc("ringmsgr_peers_"+s.name, s.help, []string{"peer_type", "state"}, labels)
	}
	return c
}

func (c connMetrics) collect(out chan<- prometheus.Metric, m *control.Messenger) {
	s, err := m.Snapshot()
	if err != nil {
		out <- prometheus.NewInvalidMetric(c[0], err)
		return
	}
	c.show(out, s.Conns)
}

func (c connMetrics) show(out chan<- prometheus.Metric, conns []control.ConnStats) {
	sums := make(map[[2]string]*[len(connSums)]int64)
	for i := range conns {
		st := &conns[i]
		if st.ID == 0 {
			continue // it has just ended
		}
		key := [2]string{knownType(st.PeerType), st.State}
		if sums[key] == nil {
			sums[key] = new([len(connSums)]int64)
		}
		for i, s := range connSums {
			sums[key][i] += s.of(st)
		}
	}
	for key, sum := range sums {
		for i, n := range sum {
			out <- prometheus.MustNewConstMetric(c[i], prometheus.GaugeValue, float64(n), key[0], key[1])
		}
	}
}

// otherType is the label of peers whose type the protocol does not have. The peer chooses the
// byte of its type: without this label it could make hundreds of series.
const otherType = "other"

func knownType(name string) string {
	if _, err := wire.ParseEntityType(name); name != "" && err != nil {
		return otherType
	}
	return name
}
