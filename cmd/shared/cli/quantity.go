package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes writes a number of bytes: "64 B", "4 KiB", "1.5 MiB".
func Bytes(n int64) string {
	return strings.Replace(humanize.IBytes(uint64(max(n, 0))), ".0 ", " ", 1)
}

// ParseBytes reads a number of bytes up to most, for example 64, 16KiB, 1.5MiB, or 4MB, which
// is 4000000.
func ParseBytes(text string, most int64) (int64, error) {
	n, err := humanize.ParseBytes(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("size %q: want a number of bytes such as 64, 16KiB or 4MiB", text)
	case n > uint64(most):
		return 0, fmt.Errorf("size %q: want at most %s", text, Bytes(most))
	}
	return int64(n), nil
}

// Count writes a number with three digits or more: "0.12", "12.3", "1 234 567".
func Count(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return humanize.FormatFloat("# ###.", v)
}

// Rate writes a number per second in at most ten columns and the unit: "9.5 kB/s" with unit
// "B/s", "106.6 k" without unit. Digits after those are cut off.
func Rate(v float64, unit string) string {
	text := humanize.SIWithDigits(v, 1, unit)
	if v < 1 { // no milli
		text = humanize.FtoaWithDigits(v, 1) + " " + unit
	}
	return strings.TrimRight(text, " ")
}

// Duration writes a time with three digits and a unit that suits it: "8.50 us",
// "12.3 ms", "250 s".
func Duration(d time.Duration) string {
	us, unit := float64(d)/1e3, "us"
	switch {
	case us >= 1e6:
		us, unit = us/1e6, "s"
	case us >= 1e3:
		us, unit = us/1e3, "ms"
	}
	digits := 2
	switch {
	case us >= 100:
		digits = 0
	case us >= 10:
		digits = 1
	}
	return strconv.FormatFloat(us, 'f', digits, 64) + " " + unit
}

// Micros is Duration for a number of microseconds.
func Micros(us float64) string { return Duration(time.Duration(math.Round(us * 1e3))) }
