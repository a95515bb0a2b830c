package clitest

import (
	"io"
	"strings"
	"testing"
)

// Must ends a test that cannot go on.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Check calls a program, which returns its exit status, with the words of args. The test fails
// unless it returns status, and its outputs contain stdout and stderr. With an empty stderr the
// program must not write there.
func Check(
	t testing.TB, p func(stdin io.Reader, stdout, stderr io.Writer, args []string) int,
	stdin, args string, status int, stdout, stderr string,
) {
	t.Helper()
	var out, errs strings.Builder
	got := p(strings.NewReader(stdin), &out, &errs, strings.Fields(args))
	if got != status || !strings.Contains(out.String(), stdout) ||
		!strings.Contains(errs.String(), stderr) || stderr == "" && errs.Len() > 0 {
		t.Errorf("%s: status %d, %.80q, %q; want %d, %.80q, %q", args, got, out.String(), errs.String(), status, stdout, stderr)
	}
}
