package prom

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
	help   string // begins the text of metrics that have no text in help
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
	words := strings.ReplaceAll(name, "_", " ")
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
		words = "seconds of " + strings.TrimSuffix(words, " ns")
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
	text := help[metric]
	if text == "" {
		text = s.help + ": " + words + "."
	}
	f.desc = prometheus.NewDesc(metric, text, labels, s.labels)
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

// help has the texts of metrics whose names do not explain them. The texts of control.Stats,
// Counters and dataplane.CoreStats say more.
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
}

// bytesOf are the numbers of bytes whose names do not say so.
var bytesOf = map[string]bool{
	"in_flight": true, "in_flight_limit": true, "sending": true, "sending_limit": true, "pool_in_use": true, "pool_kept": true,
}
