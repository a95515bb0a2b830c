package prom

import (
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringmsgr/ringmsgr/bpf"
	"github.com/ringmsgr/ringmsgr/control"
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
	conns                             *connMetrics // nil: not wanted
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
	c.up = prometheus.NewDesc("ringmsgr_up", upHelp, nil, labels)
	c.info = prometheus.NewDesc("ringmsgr_info", "Always 1; the labels are the I/O engine, and the reason if it is not io_uring.",
		[]string{"backend", "fallback"}, labels)
	c.state = prometheus.NewDesc("ringmsgr_core_state", "Always 1; the label says whether the core is running, stalled, draining, failed or stopped.",
		[]string{"core", "state"}, labels)
	c.latency = prometheus.NewDesc("ringmsgr_core_latency_seconds",
		"Sampled latencies: queue is from Send to a write, dispatch in the dispatchers, ack from a write to the ack.", []string{"core", "of"}, labels)
	c.steered = prometheus.NewDesc("ringmsgr_steered_total", "New connections by the rule that chose their core.", []string{"addr", "rule"}, labels)
	of := func(prefix, help string, names []string, t reflect.Type) []field {
		return (&set{
			prefix: prefix, labels: labels, names: names, help: help,
			gauges: map[string]bool{"driver_in_flight": true, "throttled_for_ns": true}, skip: map[string]bool{"core": true, "latency": true, "stalled": true, "counters": true, "steering": true},
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
	for _, d := range []*prometheus.Desc{c.up, c.info, c.state, c.latency, c.steered} {
		out <- d
	}
	for _, list := range [][]field{c.messenger, c.counters, c.cores} {
		for _, f := range list {
			out <- f.desc
		}
	}
	if c.conns != nil {
		c.conns.describe(out)
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
		for of, h := range map[string]*dataplane.Histogram{"queue": &core.Latency.Queue, "dispatch": &core.Latency.Dispatch, "ack": &core.Latency.Ack} {
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
