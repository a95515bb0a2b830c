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
	help   string // begins the text of metrics that have no text in help.go
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
