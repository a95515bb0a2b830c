// Package cli is what the programs have in common as commands: how they are
// called wrongly, how their flags are read and listed, and their version.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ringmsgr/ringmsgr/cmd/shared/build"
)

// The exit statuses.
const (
	OK     = 0 // it did what it was asked for
	Failed = 1 // it could not
	Usage  = 2 // it was called wrongly
)

// UsageError says that a program was called wrongly.
type UsageError struct{ Err error }

func (u *UsageError) Error() string { return u.Err.Error() }

// Unwrap returns what is wrong.
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

// PrintVersion writes what a program was built from, in one line of text or
// JSON.
func PrintVersion(w io.Writer, program string, asJSON bool) error {
	i := build.Read()
	if asJSON {
		return WriteJSON(w, i)
	}
	_, err := fmt.Fprintln(w, program, i)
	return err
}
