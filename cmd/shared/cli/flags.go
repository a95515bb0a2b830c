package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Width is how many columns a help text has at most.
const Width = 100

// NewFlags returns an empty set of flags that prints nothing by itself.
func NewFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// Parse parses flags that may stand before and behind other arguments, which
// it returns. Behind "--" there are no flags. The error is flag.ErrHelp for
// -h and --help, else a UsageError that names the flag.
func Parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, &UsageError{reworded(fs, err)}
		}
		left := fs.Args()
		if len(left) == 0 {
			return rest, nil
		}
		if taken := len(args) - len(left); taken > 0 && args[taken-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// What package flag says, with one dash before the name.
var (
	invalidValue = regexp.MustCompile(`^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-(\S+): (?s:(.*))$`)
	noSuchFlag   = regexp.MustCompile(`^flag provided but not defined: -(.*)$`)
	noValue      = regexp.MustCompile(`^flag needs an argument: -(.*)$`)
)

// reworded writes flags as the help does, and says what a value should be.
func reworded(fs *flag.FlagSet, err error) error {
	text := err.Error()
	if m := noSuchFlag.FindStringSubmatch(text); m != nil {
		var names []string
		fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		return fmt.Errorf("there is no flag --%s%s", m[1], Nearest(m[1], "--", names))
	}
	if m := noValue.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("--%s needs a value", m[1])
	}
	m := invalidValue.FindStringSubmatch(text)
	if m == nil {
		return err
	}
	value, name, why := m[1], m[2], m[3]
	if f := fs.Lookup(name); f != nil {
		if g, ok := f.Value.(flag.Getter); ok {
			why = wanted(g.Get(), value, why)
		}
	}
	return fmt.Errorf("--%s %s: %s", name, value, why)
}

// Nearest is a question behind the error about a word that is none of some names: whether one
// was meant that begins alike, or differs in a letter or two. It is empty if there is none.
func Nearest(word, dashes string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		n := distance(word, name)
		if len(word) > 1 && (strings.HasPrefix(word, name) || strings.HasPrefix(name, word)) {
			n = min(n, 1)
		}
		if n < least && n < len(name) {
			best, least = name, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s%s?", dashes, best)
}

// distance is how many letters have to be changed, added, or left out, to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// wanted says what the value of a flag should be, by its type.
func wanted(current any, quoted, why string) string {
	switch current.(type) {
	case time.Duration:
		if text, err := strconv.Unquote(quoted); err == nil {
			if _, err := strconv.ParseFloat(text, 64); err == nil {
				return fmt.Sprintf("the unit is missing, such as %ss or %sms", text, text)
			}
		}
		return "want a duration, such as 10s, 250ms or 1m30s"
	case bool:
		return "want true or false"
	case int, uint64:
		return "want a number"
	}
	return why
}

// PrintFlags lists the flags with their defaults, within Width columns.
func PrintFlags(w io.Writer, fs *flag.FlagSet) {
	const indent = 24
	fs.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		switch f.DefValue {
		case "", "false", "0", "0s":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		Hang(w, fmt.Sprintf("  %-*s", indent-3, strings.TrimSpace("--"+f.Name+" "+value)), usage, Width)
	})
}

// Hang writes a text behind a head, in lines of at most width columns that begin below each
// other. A word that is longer than that has a line of its own.
func Hang(w io.Writer, head, text string, width int) {
	fmt.Fprint(w, head)
	indent := utf8.RuneCountInString(head)
	column := indent
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if column > indent && column+1+n > width {
			fmt.Fprint(w, "\n"+strings.Repeat(" ", indent))
			column = indent
		}
		if column > 0 {
			word = " " + word
			n++
		}
		fmt.Fprint(w, word)
		column += n
	}
	fmt.Fprintln(w)
}
