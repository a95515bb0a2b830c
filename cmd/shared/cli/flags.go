package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Width is the largest width of a help text, in columns.
const Width = 100

// NewFlags returns an empty set of flags that prints no text by itself.
func NewFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// Parse parses flags before, between and after other arguments, which it returns. After "--"
// there are no flags. The error is flag.ErrHelp for -h and --help, else a UsageError that names
// the flag.
func Parse(fs *flag.FlagSet, args []string) (rest []string, err error) {
	all := twoDashes(fs)
	switch err := all.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil, flag.ErrHelp
	case err != nil:
		return nil, reworded(all, err)
	}
	return all.Args(), nil
}

// twoDashes are the flags of fs in the library's type.
func twoDashes(fs *flag.FlagSet) *pflag.FlagSet {
	all := pflag.NewFlagSet(fs.Name(), pflag.ContinueOnError)
	all.Usage = func() {}
	all.AddGoFlagSet(fs)
	all.VisitAll(func(f *pflag.Flag) {
		if f.DefValue == "0s" {
			f.DefValue = "" // is not listed as a default
		}
	})
	return all
}

// reworded names the valid values, or the flag that the user may have meant.
func reworded(fs *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	var empty *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name, dashes := unknown.GetSpecifiedName(), "--"
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			name, dashes = short, "-" // all that follows one dash
		}
		var names []string
		fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return Usagef("there is no flag %s%s%s", dashes, name, Nearest(name, "--", names))
	case errors.As(err, &empty):
		return Usagef("--%s needs a value", empty.GetFlag().Name)
	case errors.As(err, &wrong):
		f, value := wrong.GetFlag(), wrong.GetValue()
		return Usagef("--%s %q: %s", f.Name, value, wanted(f.Value.Type(), value, wrong.Unwrap()))
	}
	return &UsageError{err}
}

// Nearest ends the error about an unknown word: it asks for the nearest of names, by the library's
// measure. It is empty if no name is near.
func Nearest(word, dashes string, names []string) string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		if len(name) > 2 { // a shorter one is near to every word
			all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
		}
	}
	if near := all.SuggestionsFor(word); len(near) > 0 {
		return fmt.Sprintf(": did you mean %s%s?", dashes, near[0])
	}
	return ""
}

// wanted describes the valid values of a flag, by its type.
func wanted(kind, value string, why error) string {
	switch kind {
	case "duration":
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return fmt.Sprintf("the unit is missing, such as %ss or %sms", value, value)
		}
		return "want a duration, such as 10s, 250ms or 1m30s"
	case "bool":
		return "want true or false"
	case "int", "uint64", "float64":
		return "want a number"
	}
	return why.Error()
}

// PrintFlags lists the flags with their defaults, within Width columns.
func PrintFlags(w io.Writer, fs *flag.FlagSet) {
	fmt.Fprint(w, twoDashes(fs).FlagUsagesWrapped(Width))
}

// Hang writes a head and a text, in lines of at most width columns. All lines but the first are
// indented. A longer word has a line of its own.
func Hang(w io.Writer, head, text string, indent, width int) {
	line, column := head, utf8.RuneCountInString(head)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			fmt.Fprintln(w, line)
			line, column = strings.Repeat(" ", indent), indent
		default:
			line, column = line+" ", column+1
		}
		line, column = line+word, column+n
	}
	fmt.Fprintln(w, line)
}
