package cli

import (
	"bytes"
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestAWrongFlagIsNamedAsItIsWritten(t *testing.T) {
	for args, want := range map[string]string{
		"--wait 5":         `--wait "5": the unit is missing, such as 5s or 5ms`,
		"--wait=0.5":       `--wait "0.5": the unit is missing, such as 0.5s or 0.5ms`,
		"-wait 5s":         "there is no flag -wait: did you mean --wait?",
		"--wait soon":      `--wait "soon": want a duration, such as 10s, 250ms or 1m30s`,
		"--n many":         `--n "many": want a number, 0 to 9`,
		"--n 10":           `--n "10": want a number, 0 to 9`,
		"--size 0":         `--size "0": want at least 1 B`,
		"--size 1MiB":      `--size "1MiB": size "1MiB": want at most 4 KiB`,
		"--wait -1s":       `--wait "-1s": want at least 1ns`,
		"--word four":      `--word "four": want one, two or three`,
		"--picky y,x":      `--picky "y,x": want something else`,
		"--u -1":           `--u "-1": want a number`,
		"--b=maybe":        `--b "maybe": want true or false`,
		"--picky x":        `--picky "x": want something else`,
		"--n":              "--n needs a value",
		"x --nothing else": "there is no flag --nothing",
		"--wiat 1s":        "there is no flag --wiat: did you mean --wait?",
		"--pick x":         "there is no flag --pick: did you mean --picky?",
		"--x":              "there is no flag --x",
		"---n 1":           "bad flag syntax: ---n",
	} {
		c := &cobra.Command{Use: "x", Args: cobra.ArbitraryArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		fs := c.Flags()
		var n int
		var d time.Duration
		var size int64
		var list []string
		var word string
		DurationVar(fs, &d, "wait", time.Second, 1, "")
		IntVar(fs, &n, "n", 0, 0, 9, "")
		BytesVar(fs, &size, "size", 1, 1, 4096, "")
		fs.Uint64("u", 0, "")
		fs.Bool("b", false, "")
		ChoiceVar(fs, &word, "word", "", "", "one", "two", "three")
		Var(fs, &list, "picky", "", "", List(Wanted(func(one string) (string, error) {
			if one != "y" {
				return "", errors.New("no way: want something else")
			}
			return one, nil
		})))
		var errs strings.Builder
		status := Run(t.Context(), c, io.Discard, &errs, strings.Fields(args))
		if got, _, _ := strings.Cut(errs.String(), "\n"); status != Usage || got != "x: "+want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

func TestLinesOfATextAreIndented(t *testing.T) {
	var b strings.Builder
	Hang(&b, "", "one two three  four five-and-much-more six", 2, 12)
	Hang(&b, "  ", "one two three", 4, 9)
	Hang(&b, "", "a b c d e", 4, 6)
	if want := "one two\n  three four\n  five-and-much-more\n  six\n  one two\n    three\na b c\n    d\n    e\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}

func TestTheVersionNamesTheCommit(t *testing.T) {
	b := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	b.Main.Version = "v1.2.3"
	i := Build{Version: "(devel)", Go: "go1.26", Platform: "linux/amd64"}
	if got := i.String(); !strings.HasPrefix(got, "(devel), commit not known (") || !strings.HasSuffix(got, ", go1.26 linux/amd64") {
		t.Error(got)
	}
	i.fill(b)
	if got := i.String(); got != "v1.2.3, commit 0123456789ab with changes, go1.26 linux/amd64" {
		t.Error(got)
	}
	i.Modified = false
	if got := i.String(); got != "v1.2.3, commit 0123456789ab, go1.26 linux/amd64" {
		t.Error(got)
	}
}

func TestQuantitiesReadWell(t *testing.T) {
	for want, got := range map[string]string{
		"64 B": Bytes(64), "4 KiB": Bytes(4096), "1 MiB": Bytes(1 << 20), "1.5 KiB": Bytes(1536), "10 KiB": Bytes(10240), "0 B": Bytes(-1),
		"1 234 567": Count(1234567), "999": Count(999), "1 000": Count(999.9), "12.3": Count(12.34), "0.12": Count(0.123),
		"1.23 us": Micros(1.234), "12.3 us": Micros(12.34), "123 us": Micros(123.4), "1.23 ms": Micros(1234), "1.50 s": Micros(1.5e6),
		"250 s": Duration(250 * time.Second), "0.00 us": Duration(0),
		"0": Rate(0, ""), "0 B/s": Rate(0, "B/s"), "0.5": Rate(0.5, ""), "9.5 kB/s": Rate(9500, "B/s"), "106.6 k": Rate(106640, ""),
		"12.5 M": Rate(12.5e6, ""), "1.9 MB/s": Rate(1.953e6, "B/s"), "1.9 k": Rate(1949, ""), "3 B/s": Rate(3, "B/s"), "501.9 MB/s": Rate(501.961e6, "B/s"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSizesAreRead(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "64": 64, "64B": 64, "16KiB": 16 << 10, "4MiB": 4 << 20, "1GiB": 1 << 30, "1.5MiB": 3 << 19, "4MB": 4e6, "4 MiB": 4 << 20,
	} {
		if got, err := ParseBytes(text, 1<<30); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "0x10", "many", "1.1GiB", "99999999999999999999", "10e30"} {
		if got, err := ParseBytes(text, 1<<30); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

// The scripts of all shells ask the program itself, and take files where it ends with :0.
func TestCommandsFlagsAndTheirValuesAreCompleted(t *testing.T) {
	for line, want := range map[string]string{
		"":                   "completion help put version :4",
		"completion ":        "bash fish powershell zsh :4",
		"p":                  "put :4",
		"help ":              "put version :4",
		"put --":             "--engine --help --json --key :4",
		"put --json --e":     "--engine :4",
		"put --engine ":      "auto epoll :4",
		"put --key somewh":   ":0",
		"put ":               ":0",
		"put --json nothing": ":0",
	} {
		put := &cobra.Command{Use: "put [KEY]", Short: "write", RunE: func(*cobra.Command, []string) error { return nil }}
		fs := put.Flags()
		var engine string
		ChoiceVar(fs, &engine, "engine", "", "I/O `ENGINE`: it's [a] choice", "auto", "epoll")
		fs.String("key", "", "`FILE` of the key")
		fs.Bool("json", false, "write JSON")
		prog := &cobra.Command{Use: "prog"}
		prog.AddCommand(put)
		var out, errs bytes.Buffer
		status := Run(t.Context(), prog, &out, &errs, append([]string{"__complete"}, strings.Split(line, " ")...))
		var got []string
		for line := range strings.Lines(out.String()) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); word != "-h" {
				got = append(got, word)
			}
		}
		if status != OK || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %s; %s", line, got, want, errs.String())
		}
	}
}
