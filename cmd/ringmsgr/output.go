package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/quantity"
)

// table is a report for people: a name and what there is to say about it.
type table struct{ w io.Writer }

func (t *table) row(name, format string, args ...any) {
	fmt.Fprintf(t.w, "%-12s %s\n", name, fmt.Sprintf(format, args...))
}

// hang writes a text behind a head, in lines of at most width columns that begin below
// each other. A word that is longer than that has a line of its own.
func hang(w io.Writer, head, text string, width int) {
	indent := utf8.RuneCountInString(head)
	fmt.Fprint(w, head)
	column := indent
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if column > indent && column+1+n > width {
			fmt.Fprint(w, "\n"+strings.Repeat(" ", indent))
			column = indent
		}
		fmt.Fprint(w, " "+word)
		column += 1 + n
	}
	fmt.Fprintln(w)
}

// paragraph writes a text in lines of at most width columns.
func paragraph(w io.Writer, text string, width int) {
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			fmt.Fprintln(w)
			column = 0
		default:
			word = " " + word
			n++
		}
		fmt.Fprint(w, word)
		column += n
	}
	fmt.Fprintln(w)
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
