package report

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

// DefaultWidth is the width of a report in columns, without File.Width.
const DefaultWidth = 100

// width is the width in columns.
func (f *File) width() int {
	if f.Width > 0 {
		return f.Width
	}
	return DefaultWidth
}

// writeAligned writes rows in columns, the first one to the left and the others to the right.
// If they are too wide it makes several tables, one below the other, each with the first
// column; columns from apart on, if that is not 0, stay together then.
func writeAligned(b *bytes.Buffer, rows [][]string, width, apart int) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, block := range blocks(widths, width, apart) {
		for _, row := range rows {
			if block.first > 1 && len(row) <= block.first {
				continue // it says everything in the first block
			}
			var line strings.Builder
			line.WriteString("  " + row[0] + strings.Repeat(" ", max(0, widths[0]-utf8.RuneCountInString(row[0]))))
			for i := block.first; i < min(block.end, len(row)); i++ {
				line.WriteString("  " + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i])) + row[i])
			}
			b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
}

// block is a part of a table: column 0 and the columns first to end-1.
type block struct{ first, end int }

// blocks cuts columns of some widths into blocks that fit. A column that is too
// wide by itself has a block of its own.
func blocks(widths []int, width, apart int) (list []block) {
	fits := func(first, end int) bool {
		sum := 2 + widths[0]
		for _, w := range widths[first:end] {
			sum += 2 + w
		}
		return sum <= width
	}
	if len(widths) < 2 || fits(1, len(widths)) {
		return []block{{1, len(widths)}}
	}
	for first := 1; first < len(widths); {
		end := first + 1
		for end < len(widths) && end != apart && fits(first, end+1) {
			end++
		}
		list = append(list, block{first, end})
		first = end
	}
	return list
}

// writeText writes a paragraph, broken between words. It keeps its indentation;
// lines from the second on have two columns more.
func writeText(b *bytes.Buffer, text string, width int) {
	indent := len(text) - len(strings.TrimLeft(text, " "))
	cli.Hang(b, text[:indent], text, indent+2, width)
}
