package prom

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

// collector shows the statistics of one messenger.
type collector struct {
	m    *control.Messenger // nil: a Remote has the statistics
	name string

	up, info, state, latency, steered *prometheus.Desc
	messenger, counters, cores        []field
	conns                             connMetrics // nil: not wanted
}

// Option changes what a collector shows.
type Option func(*collector)

// Conns adds sums over the connections, by the type of the peer and the state: their queues
// and the memory that they hold. Each scrape asks every connection; it is meant for hundreds
// of connections.
func Conns() Option { return func(c *collector) { c.conns = newConnMetrics(c.labels()) } }

// New makes a collector of m, which it does not shut down. Any goroutine may use it; several of
// them can be in one registry if their messengers have different names, in which all bytes that
// are no UTF-8 are alike.
func New(m *control.Messenger, opts ...Option) prometheus.Collector {
	c := named(m.Name().String(), opts...)
	c.m = m
	return c
}

const upHelp = "Whether the messenger runs: 0 after its shutdown."

// named makes a collector of a messenger with a name.
func named(name string, opts ...Option) *collector {
	c := &collector{name: string([]rune(name))} // its bytes that are no UTF-8 are as in JSON; Prometheus takes no others
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
	of := func(prefix string, names []string, t reflect.Type) []field {
		return (&set{
			prefix: prefix, labels: labels, names: names,
			gauges: map[string]bool{"driver_in_flight": true, "throttled_for_ns": true},
			skip:   map[string]bool{"core": true, "latency": true, "stalled": true, "counters": true, "steering": true},
		}).of(t)
	}
	c.messenger = of("ringmsgr", nil, reflect.TypeFor[control.Stats]())
	c.counters = of("ringmsgr", nil, reflect.TypeFor[control.Counters]())
	c.cores = of("ringmsgr_core", []string{"core"}, reflect.TypeFor[dataplane.CoreStats]())
	for _, o := range opts {
		o(c)
	}
	return c
}

func (c *collector) labels() prometheus.Labels {
	return prometheus.Labels{"messenger": c.name}
}

// Handler serves the metrics of m, of the Go runtime and of the process.
func Handler(m *control.Messenger, opts ...Option) http.Handler {
	all := prometheus.NewRegistry()
	all.MustRegister(New(m, opts...), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
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
func (c *collector) Collect(out chan<- prometheus.Metric) {
	st, err := c.m.Stats()
	c.show(out, &st, err)
	if c.conns != nil && err == nil {
		c.conns.collect(out, c.m)
	}
}

// show sends all metrics but those of connections. With an error the messenger does not run,
// and st has its last statistics.
func (c *collector) show(out chan<- prometheus.Metric, st *control.Stats, err error) {
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

func (c *collector) collectSteering(out chan<- prometheus.Metric, addr string, n *bpf.Counters) {
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
	last *collector // knows the messenger's name; nil: not reached yet
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
func (r *Remote) reached(s *control.Snapshot) *collector {
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

// The statistics are structures of numbers with names in JSON. The metrics are found
// in their types, so that none is forgotten: a uint64 is a counter, a signed integer a
// gauge, a time.Duration a counter of seconds, and a structure of them one metric with a
// label for its fields.

// field is one number of a structure as a metric.
type field struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	scale float64
	path  []int
	label string // of the field in its group; empty: it is in no group
}

// set describes fields.
type set struct {
	prefix string
	labels prometheus.Labels // of every metric
	names  []string          // of the labels that vary, without the label of a group
	gauges map[string]bool   // names of unsigned numbers that may go down
	skip   map[string]bool
}

// of are the metrics of a structure.
func (s *set) of(t reflect.Type) (list []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for _, one := range s.of(f.Type) {
				one.path = append(slices.Clone(f.Index), one.path...)
				list = append(list, one)
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || s.skip[name] {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			list = append(list, s.group(name, f)...)
		} else if one, ok := s.number(name, "", f.Type, s.names); ok {
			one.path = f.Index
			list = append(list, one)
		}
	}
	return list
}

// group makes one metric of the counters of a structure, with a label for the field. Gauges
// among its fields are metrics of their own.
func (s *set) group(name string, group reflect.StructField) (list []field) {
	t := group.Type
	for i := range t.NumField() {
		f := t.Field(i)
		kind, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if kind == "" || s.skip[name+"_"+kind] {
			continue
		}
		labels := append(append([]string{}, s.names...), "kind")
		one, ok := s.number(name, kind, f.Type, labels)
		if ok && one.kind == prometheus.GaugeValue {
			one, ok = s.number(name+"_"+kind, "", f.Type, s.names)
		}
		if ok {
			one.path = append(append([]int{}, group.Index...), f.Index...)
			list = append(list, one)
		}
	}
	return list
}

// number is one metric without its path.
func (s *set) number(name, label string, t reflect.Type, labels []string) (field, bool) {
	f := field{kind: prometheus.CounterValue, scale: 1, label: strings.TrimSuffix(label, "_ns")}
	full := name
	if label != "" {
		full = name + "_" + label
	}
	metric := s.prefix + "_" + name
	switch {
	case t == reflect.TypeFor[time.Duration]():
		f.scale = 1 / float64(time.Second)
		metric = strings.TrimSuffix(metric, "_ns") + "_seconds"
		if s.gauges[full] {
			f.kind = prometheus.GaugeValue
		} else {
			metric += "_total"
		}
	case t.Kind() == reflect.Uint64 && !s.gauges[full]:
		metric += "_total"
	case t.Kind() == reflect.Uint64, t.Kind() == reflect.Int, t.Kind() == reflect.Int64, t.Kind() == reflect.Bool:
		f.kind = prometheus.GaugeValue
		if bytesOf[full] {
			metric += "_bytes"
		}
	default:
		return f, false
	}
	f.desc = prometheus.NewDesc(metric, help[metric], labels, s.labels)
	return f, true
}

// collect reads the metrics of a structure, whose varying labels have these values.
func collect(out chan<- prometheus.Metric, v reflect.Value, list []field, values ...string) {
	for _, f := range list {
		n, with := 0.0, values
		switch one := v.FieldByIndex(f.path); one.Kind() {
		case reflect.Uint64:
			n = float64(one.Uint())
		case reflect.Bool:
			if one.Bool() {
				n = 1
			}
		default:
			n = float64(one.Int())
		}
		if f.label != "" {
			with = append(append([]string{}, values...), f.label)
		}
		out <- prometheus.MustNewConstMetric(f.desc, f.kind, n*f.scale, with...)
	}
}

// help has the texts of metrics. Those of control.Stats, Counters and dataplane.CoreStats say more.
var help = map[string]string{
	"ringmsgr_open":                      "Connections now, those without a socket included.",
	"ringmsgr_standby":                   "Sessions without a socket that wait for their peer.",
	"ringmsgr_unanswered":                "Connections that dial without an answer.",
	"ringmsgr_unanswered_seconds":        "Time since the first of them began to dial.",
	"ringmsgr_half_open":                 "Handshakes of accepted sockets under way.",
	"ringmsgr_in_flight_bytes":           "Received payload that is not released.",
	"ringmsgr_in_flight_limit_bytes":     "Bound of the received payload that is not released, 0: none.",
	"ringmsgr_waiting":                   "Connections that do not read because of the bound on received payload.",
	"ringmsgr_throttled_conns":           "Connections that do not read because of received messages that are not released.",
	"ringmsgr_throttled_for_seconds":     "Time since the first of these connections read for the last time.",
	"ringmsgr_sending_bytes":             "Payload that is held to be sent, or until it is acknowledged.",
	"ringmsgr_sending_limit_bytes":       "Bound of the payload that is held to be sent, 0: none.",
	"ringmsgr_conns_total":               "Connections that were made or accepted.",
	"ringmsgr_closed_total":              "Connections that are over.",
	"ringmsgr_accepted_total":            "Sockets that were accepted.",
	"ringmsgr_accept_failures_total":     "Handshakes of accepted sockets that failed.",
	"ringmsgr_auth_failures_total":       "Handshakes of accepted sockets that failed by their authentication.",
	"ringmsgr_failures_total":            "Handshakes of accepted sockets that failed, by cause.",
	"ringmsgr_refused_total":             "Accepted sockets that found no place among the half-open ones.",
	"ringmsgr_door_total":                "Accepted sockets that were refused at a bound, by the bound, and half-open ones that gave way.",
	"ringmsgr_bad_banners_total":         "Accepted sockets that speak another protocol, by what it looks like.",
	"ringmsgr_expired_total":             "Sessions that ended because their peer did not come back or answer.",
	"ringmsgr_undispatched_total":        "Messages that no dispatcher took.",
	"ringmsgr_illegal_transitions_total": "Bugs of the messenger: always 0.",
	"ringmsgr_hints_total":               "Hints about the core that owns a session, by their outcome.",
	"ringmsgr_placement_total":           "Accepted sockets by where they arrived.",
	"ringmsgr_core_cpu_seconds_total":    "CPU time of the core's thread, in the kernel included: its rate is its share of a CPU.",
	"ringmsgr_core_driver_total":         "Requests, completions and system calls of the driver of a core.",
	"ringmsgr_core_driver_in_flight":     "Operations that the kernel has.",
	"ringmsgr_core_load":                 "Connections that the core owns, with a socket or without.",
	"ringmsgr_core_sockets":              "Sockets that are open.",
	"ringmsgr_core_handlers":             "Sockets on which messages are exchanged.",
	"ringmsgr_core_turns_total":          "Rounds of the loop.",
	"ringmsgr_core_paused_total":         "Times that a bound stopped a connection from reading.",
	"ringmsgr_core_stalls_total":         "Times that the core was found standing still with work.",
	"ringmsgr_core_stray_total":          "Completions of sockets that had ended.",
	"ringmsgr_core_too_slow_total":       "Connections that ended because a message came too slowly.",
	"ringmsgr_core_given_up_total":       "Sockets that were given up because acks might wait behind a full receive budget.",
	"ringmsgr_core_pool_in_use_bytes":    "Receive buffers that are lent.",
	"ringmsgr_core_pool_kept_bytes":      "Free receive buffers that are kept.",
	"ringmsgr_core_pool_lent_total":      "Receive buffers that were asked for.",
	"ringmsgr_core_receiving":            "Sockets that receive into the ring's buffers now; the others are read when they are ready.",
	"ringmsgr_core_receives_total":       "Times that bytes came in the ring's buffers.",
	"ringmsgr_core_took_buffers_total":   "Times that a socket began to receive into the ring's buffers.",
	"ringmsgr_core_left_buffers_total":   "Times that a socket went back from the ring's buffers to direct reads.",
	"ringmsgr_core_rearms_total":         "Multishot operations that were armed again.",
	"ringmsgr_core_messages_in_total":    "Messages that were received.",
	"ringmsgr_core_messages_out_total":   "Messages that were written.",
	"ringmsgr_core_bytes_in_total":       "Bytes that were received.",
	"ringmsgr_core_bytes_out_total":      "Bytes that were written.",
	"ringmsgr_core_link_calls_total":     "Times that a handshake waited for the core.",
	"ringmsgr_core_early_events_total":   "Events of sessions that had to wait for one before them.",
	"ringmsgr_core_moved_here_total":     "Connections that came from other cores.",
	"ringmsgr_core_moved_away_total":     "Connections that went to other cores.",
	"ringmsgr_core_aborted_total":        "Frames that their sender aborted.",
	"ringmsgr_core_accepts_total":        "Sockets that were accepted on the core.",
	"ringmsgr_core_spin_hits_total":      "Polls that found work.",
	"ringmsgr_core_spin_misses_total":    "Polls that ended in sleep.",
	"ringmsgr_partial_resets_sent_total": "SESSION_RESET frames that left the peer its queue.",
	"ringmsgr_waits_sent_total":          "WAIT frames that were sent.",
	"ringmsgr_retries_sent_total":        "RETRY and RETRY_GLOBAL frames that were sent.",
	"ringmsgr_resets_sent_total":         "SESSION_RESET frames that were sent.",
	"ringmsgr_core_accept_errors_total":  "Accepts that failed.",
	"ringmsgr_core_reads_total":          "Direct reads that brought bytes.",
	"ringmsgr_core_writes_total":         "Gathered writes.",
	"ringmsgr_core_frames_in_total":      "Frames that were received.",
	"ringmsgr_core_acks_in_total":        "Received frames that are acks.",
	"ringmsgr_core_refused_total":        "Accepted sockets that were closed at once.",
	"ringmsgr_core_accept_pauses_total":  "Times that a listener paused because it refused many sockets.",
	"ringmsgr_core_control_pauses_total": "Times that a connection was not read for a while because it brought too many frames without use.",
	"ringmsgr_core_files_total":          "Requests on files, the bytes that they read and wrote, syncs, and the requests that these made durable.",
	"ringmsgr_core_files_open":           "Files that are open.",
	"ringmsgr_core_files_ops":            "Requests on files that have not ended.",
	"ringmsgr_core_files_waiting":        "Requests on files that wait for their turn.",
	"ringmsgr_core_files_uncommitted":    "Requests on files that no sync covers yet.",
	"ringmsgr_core_files_held_bytes":     "Bytes of buffers that reads of files hold.",
}

// bytesOf are the numbers of bytes whose names do not say so.
var bytesOf = map[string]bool{
	"in_flight": true, "in_flight_limit": true, "sending": true, "sending_limit": true, "pool_in_use": true, "pool_kept": true,
	"files_held": true,
}
