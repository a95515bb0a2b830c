package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
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
	var u *UsageError
	return errors.As(err, &u)
}

// OneLine joins the lines of a joined error.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// WriteJSON writes v as one line.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// PrintVersion writes the Build of a program, in one line of text or JSON.
func PrintVersion(w io.Writer, program string, asJSON bool) error {
	i := ReadBuild()
	if asJSON {
		return WriteJSON(w, i)
	}
	_, err := fmt.Fprintln(w, program, i)
	return err
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
