package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

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
		fs := NewFlags("put")
		var engine string
		ChoiceVar(fs, &engine, "engine", "", "I/O `ENGINE`: it's [a] choice", "auto", "epoll")
		fs.String("key", "", "`FILE` of the key")
		fs.Bool("json", false, "write JSON")
		p := Program{Name: "prog", Commands: []Command{{Name: "put", Args: "[KEY]", Help: "write", Flags: fs}}}
		var out, errs bytes.Buffer
		status := p.Run(t.Context(), &out, &errs, append([]string{"__complete"}, strings.Split(line, " ")...))
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
