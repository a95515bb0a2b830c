package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
)

// The exit statuses.
const (
	OK     = 0 // the program did its work
	Failed = 1 // it could not
	Usage  = 2 // it was called wrongly
)

// UsageError says that a program was called wrongly.
type UsageError struct{ Err error }

func (u *UsageError) Error() string { return u.Err.Error() }

// Unwrap returns the cause.
func (u *UsageError) Unwrap() error { return u.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// IsUsage says whether err, or an error in it, is a UsageError.
func IsUsage(err error) bool {
	return errors.As(err, new(*UsageError))
}

// Cause is the error number in err, if there is one. The caller names the file or the address,
// in place of the layers that wrapped it.
func Cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// OneLine joins the lines of a joined error.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// WriteJSON writes v as one line.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Build are the sources of a program.
type Build struct {
	Version  string `json:"version"`            // of the module: a tag, a pseudo-version, or "(devel)"
	Commit   string `json:"commit,omitempty"`   // in full; empty if it is not known
	Modified bool   `json:"modified,omitempty"` // the commit is not all
	Go       string `json:"go"`                 // version of the toolchain
	Platform string `json:"platform"`           // for example linux/amd64
}

// ReadBuild returns the Build of this program.
func ReadBuild() Build {
	i := Build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		i.fill(b)
	}
	return i
}

// fill takes the facts that the toolchain has put into the program.
func (i *Build) fill(b *debug.BuildInfo) {
	if b.Main.Version != "" {
		i.Version = b.Main.Version
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
}

// String is one line for people.
func (i Build) String() string {
	source := "commit not known (\"go build -buildvcs=true\" in a clone notes it)"
	if i.Commit != "" {
		source = fmt.Sprintf("commit %.12s", i.Commit)
		if i.Modified {
			source += " with changes"
		}
	}
	return i.Version + ", " + source + ", " + i.Go + " " + i.Platform
}

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
	return Count(us) + " " + unit
}

// Micros is Duration for a number of microseconds.
func Micros(us float64) string { return Duration(time.Duration(math.Round(us * 1e3))) }
