package main

import (
	"strings"
	"unicode/utf8"
)

// topColumn is a column of a table with rows of type R.
type topColumn[R any] struct {
	head  string
	width int  // columns on the screen, at least
	rank  int  // where room is short those of the highest rank go first
	left  bool // aligned to the left
	grows int  // widest that it gets when there is room; 0: it does not grow
	cell  func(r *R, width int) (text, style string)
}

// fitColumns leaves out what does not fit into width, and widens what grows.
// A width of 0 has room for all.
func fitColumns[R any](all []topColumn[R], width int) []topColumn[R] {
	shown := append([]topColumn[R](nil), all...)
	if width <= 0 {
		return shown
	}
	used := func() (n int) {
		for _, c := range shown {
			n += c.width + 1
		}
		return n - 1
	}
	for len(shown) > 1 && used() > width {
		worst := 0
		for i := range shown {
			if shown[i].rank >= shown[worst].rank {
				worst = i
			}
		}
		shown = append(shown[:worst], shown[worst+1:]...)
	}
	for i := range shown {
		if c := &shown[i]; c.grows > 0 {
			c.width += max(0, min(c.grows-c.width, width-used()))
		}
	}
	return shown
}

// tableHead is the line above the rows.
func tableHead[R any](columns []topColumn[R]) string {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = align(c.head, c.width, c.left)
	}
	return strings.Join(cells, " ")
}

// tableRow is the line of one row.
func tableRow[R any](v *topView, columns []topColumn[R], r *R) string {
	cells := make([]string, len(columns))
	for i, c := range columns {
		text, style := c.cell(r, c.width)
		cells[i] = v.styled(style, align(text, c.width, c.left))
	}
	return strings.TrimRight(strings.Join(cells, " "), " ")
}

// align fills or cuts text to a width.
func align(text string, width int, left bool) string {
	text = cut(text, width)
	blanks := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if left {
		return text + blanks
	}
	return blanks + text
}
