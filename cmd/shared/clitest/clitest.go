// Package clitest calls a program within its test, and checks what it says.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package clitest

import (
	"io"
	"strings"
	"testing"
)

// Program is the whole of a program: its exit status.
type Program func(stdin io.Reader, stdout, stderr io.Writer, args []string) int

// Check calls the program with the words of args, and fails the test unless the status is
// that, and stdout and stderr are part of what it writes. If stderr is empty nothing may be
// written there.
func Check(t testing.TB, p Program, stdin, args string, status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	got := p(strings.NewReader(stdin), &out, &errs, strings.Fields(args))
	if got != status || !strings.Contains(out.String(), stdout) ||
		!strings.Contains(errs.String(), stderr) || stderr == "" && errs.Len() > 0 {
		t.Errorf("%s: status %d, %.80q, %q; want %d, %.80q, %q", args, got, out.String(), errs.String(), status, stdout, stderr)
	}
}
