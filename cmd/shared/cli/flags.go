package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Width is the largest width of a help text, in columns.
const Width = 100

// value is a flag whose text is read when it is set.
type value[T any] struct {
	to         *T
	text, kind string
	read       func(text string) (T, error)
	hints      []string // for completion
}

func (v *value[T]) String() string  { return v.text }
func (v *value[T]) Type() string    { return v.kind }
func (v *value[T]) Hints() []string { return v.hints }

func (v *value[T]) Set(text string) (err error) {
	*v.to, err = v.read(text)
	v.text = text
	return err
}

// Var defines a flag that sets to, by the result of read. Its preset has to be right; an empty one is not read.
// The hints complete it.
func Var[T any](
	fs *pflag.FlagSet, to *T, name, preset, usage string, read func(text string) (T, error), hints ...string,
) {
	define(fs, &value[T]{to, preset, "string", read, hints}, name, usage)
}

func define[T any](fs *pflag.FlagSet, v *value[T], name, usage string) {
	if v.text != "" {
		if err := v.Set(v.text); err != nil {
			panic(err)
		}
	}
	fs.Var(v, name, usage)
}

// ChoiceVar defines a flag that is one of some words.
func ChoiceVar[T ~string](fs *pflag.FlagSet, to *T, name, preset, usage string, of ...T) {
	var words []string
	for _, w := range of {
		words = append(words, string(w))
	}
	last := len(words) - 1
	Var(fs, to, name, preset, usage, func(text string) (T, error) {
		if slices.Contains(words, text) {
			return T(text), nil
		}
		return "", fmt.Errorf("want %s or %s", strings.Join(words[:last], ", "), words[last])
	}, words...)
}

// IntVar defines a flag that is a number from least to most.
func IntVar(fs *pflag.FlagSet, to *int, name string, preset, least, most int, usage string) {
	want := fmt.Sprintf("want a number, %d to %d", least, most)
	if most == math.MaxInt {
		want = fmt.Sprintf("want a number, at least %d", least)
	}
	define(fs, &value[int]{to: to, text: strconv.Itoa(preset), read: func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			err = errors.New(want)
		}
		return n, err
	}}, name, usage)
}

// DurationVar defines a flag that is a time of at least so much.
func DurationVar(fs *pflag.FlagSet, to *time.Duration, name string, preset, least time.Duration, usage string) {
	v := &value[time.Duration]{to: to, read: func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if _, bare := strconv.ParseFloat(text, 64); bare == nil && text != "0" {
			return 0, fmt.Errorf("the unit is missing, such as %ss or %sms", text, text)
		}
		switch {
		case err != nil:
			return 0, errors.New("want a duration, such as 10s, 250ms or 1m30s")
		case d < least:
			return 0, fmt.Errorf("want at least %v", least)
		}
		return d, nil
	}}
	if preset > 0 { // nothing is not listed as a default
		v.text = preset.String()
	}
	define(fs, v, name, usage)
}

// BytesVar defines a flag that is a number of bytes from least to most, for example 4MiB.
func BytesVar(fs *pflag.FlagSet, to *int64, name string, preset, least, most int64, usage string) {
	define(fs, &value[int64]{to: to, text: Bytes(preset), read: func(text string) (int64, error) {
		n, err := ParseBytes(text, most)
		if err == nil && n < least {
			err = fmt.Errorf("want at least %s", Bytes(least))
		}
		return n, err
	}}, name, usage)
}

// List reads the elements of a comma list.
func List[T any](read func(text string) (T, error)) func(text string) ([]T, error) {
	return func(text string) (list []T, err error) {
		for one := range strings.SplitSeq(text, ",") {
			v, err := read(strings.TrimSpace(one))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
}

// Wanted has the errors of a reader say only the valid values.
func Wanted[T any](read func(text string) (T, error)) func(text string) (T, error) {
	return func(text string) (T, error) {
		v, err := read(text)
		if err != nil {
			if i := strings.LastIndex(err.Error(), "want "); i >= 0 {
				err = errors.New(err.Error()[i:])
			}
		}
		return v, err
	}
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
		why := wrong.Unwrap()
		switch wrong.GetFlag().Value.Type() {
		case "bool":
			why = errors.New("want true or false")
		case "uint64", "float64":
			why = errors.New("want a number")
		}
		return Usagef("--%s %q: %w", wrong.GetFlag().Name, wrong.GetValue(), why)
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
