package clitest

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// verdict counts what a check finds.
type verdict struct {
	testing.TB
	wrong int
}

func (v *verdict) Helper()               {}
func (v *verdict) Errorf(string, ...any) { v.wrong++ }

func TestACallIsCheckedInEveryPart(t *testing.T) {
	program := func(stdin io.Reader, stdout, stderr io.Writer, args []string) int {
		text, _ := io.ReadAll(stdin)
		fmt.Fprintf(stdout, "got %s and %s", text, strings.Join(args, "+"))
		fmt.Fprint(stderr, strings.Repeat("bad", len(args)-2))
		return len(args)
	}
	for _, c := range []struct {
		stdin, args    string
		status         int
		stdout, stderr string
		wrong          int
	}{
		{"in", "a b", 2, "got in and a+b", "", 0},
		{"in", "a b", 2, "", "", 0},
		{"in", "a b c", 3, "", "bad", 0},
		{"in", "a b c", 3, "", "", 1},
		{"in", "a b c", 3, "", "good", 1},
		{"in", "a b", 1, "", "", 1},
		{"other", "a b", 2, "got in", "", 1},
	} {
		v := &verdict{TB: t}
		if Check(v, program, c.stdin, c.args, c.status, c.stdout, c.stderr); v.wrong != c.wrong {
			t.Errorf("%+v: %d are wrong", c, v.wrong)
		}
	}
}
