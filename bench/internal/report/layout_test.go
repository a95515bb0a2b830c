package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// Matrix: BE-06
func TestNoLineIsWiderThanTheReport(t *testing.T) {
	wide := canned()
	wide.Servers[2].Name, wide.Cells[0].Results[2].Server = "io_uring+recv", "io_uring+recv"
	wide.Machine.CPU = strings.Repeat("a long name ", 12)
	wide.Notes = []string{strings.Repeat("it could not do something ", 20)}
	for i := range wide.Cells[0].Results {
		wide.Cells[0].Results[i].BytesPerConn = 12345
	}
	for _, width := range []int{0, 60, 80, 100, 160} {
		wide.Width = width
		var b bytes.Buffer
		clitest.Must(t, wide.WriteTable(&b))
		limit := width
		if limit == 0 {
			limit = DefaultWidth
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > limit {
				t.Errorf("width %d: %d columns: %s", width, n, line)
			}
		}
	}
}

func TestATableIsCutIntoTablesThatFit(t *testing.T) {
	rows := [][]string{{"name", "one", "two", "three", "four"}, {"x", "1", "22", "333", "4444"}, {"y", "nothing"}}
	for width, want := range map[int]string{
		80: "  name      one  two  three  four\n  x           1   22    333  4444\n  y     nothing\n",
		30: "  name      one  two\n  x           1   22\n  y     nothing\n" + "  name  three  four\n  x       333  4444\n",
		16: "  name      one\n  x           1\n  y     nothing\n" + "  name  two\n  x      22\n" + "  name  three\n  x       333\n" + "  name  four\n  x     4444\n",
	} {
		var b bytes.Buffer
		writeAligned(&b, rows, width, 3)
		if b.String() != want {
			t.Errorf("width %d:\n%s", width, b.String())
		}
	}
}
