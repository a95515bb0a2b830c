package main

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

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

func (m micros) String() string { return quantity.Micros(float64(m)) }

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
		if err := cli.WriteJSON(e.stdout, f); err != nil {
			return err
		}
		return cli.ErrReported
	}
	fmt.Fprintf(e.stderr, "ringmsgr %s: %s: %s\n", name, f.Stage, f.Error)
	return cli.ErrReported
}
