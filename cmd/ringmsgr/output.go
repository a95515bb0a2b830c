package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table is a report for people: a name and what there is to say about it.
type table struct{ w io.Writer }

func (t *table) row(name, format string, args ...any) {
	fmt.Fprintf(t.w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
}

// micros is a duration in microseconds, to a tenth.
type micros float64

func toMicros(d time.Duration) micros {
	return micros(math.Round(float64(d)/100) / 10)
}

func (m micros) String() string {
	switch {
	case m >= 1e6:
		return fmt.Sprintf("%.2f s", float64(m)/1e6)
	case m >= 1e3:
		return fmt.Sprintf("%.2f ms", float64(m)/1e3)
	}
	return fmt.Sprintf("%.1f us", float64(m))
}

// round keeps n decimals.
func round(v float64, n int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow10(n)
	return math.Round(v*p) / p
}

// fail reports a failure and returns the error that says so.
func fail(e env, name string, asJSON bool, f failure) error {
	if asJSON {
		if err := writeJSON(e.stdout, f); err != nil {
			return err
		}
		return errReported
	}
	fmt.Fprintf(e.stderr, "ringmsgr %s: %s: %s\n", name, f.Stage, f.Error)
	return errReported
}
