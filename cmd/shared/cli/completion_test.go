package cli

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func script(t *testing.T, shell string) string {
	t.Helper()
	fs := NewFlags("put")
	fs.String("engine", "", "I/O `ENGINE`: it's [a] choice")
	fs.String("key", "", "`FILE` of the key")
	fs.Bool("json", false, "write JSON")
	p := Program{Name: "prog", Commands: []Command{{Name: "put", Help: "write: it's done", Flags: fs}}, Values: map[string][]string{"ENGINE": {"auto", "epoll"}}}
	var b, errs bytes.Buffer
	if status := p.Run(t.Context(), &b, &errs, []string{"completion", shell}); status != OK {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	return b.String()
}

func TestBashCompletesCommandsFlagsAndValues(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skipf("no bash: %v", err)
	}
	for line, want := range map[string][]string{
		"prog ":                 {"put", "version", "completion", "help"},
		"prog completion ":      {"bash", "zsh", "fish"},
		"prog p":                {"put"},
		"prog put --":           {"--engine", "--json", "--key"},
		"prog put --json --e":   {"--engine"},
		"prog put --engine ":    {"auto", "epoll"},
		"prog put --engine ep":  {"epoll"},
		"prog put --key somewh": nil, // there is no such file
		"prog help ":            {"put"},
	} {
		words := strings.Split(line, " ")
		quoted := "'" + strings.Join(words, "' '") + "'"
		run := script(t, "bash") + "\nCOMP_WORDS=(" + quoted + ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_prog\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
		cmd := exec.Command(bash, "--norc", "-c", run)
		cmd.Dir = filepath.Dir(t.TempDir())
		out, err := cmd.CombinedOutput()
		if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, out, err, want)
		}
	}
}

func TestOtherShellsGetTheSameWords(t *testing.T) {
	for shell, lines := range map[string][]string{
		"zsh": {"#compdef prog\n", "bashcompinit\n_prog() {", "put:--engine) COMPREPLY=($(compgen -W 'auto epoll'"},
		"fish": {`-n __fish_use_subcommand -f -a put -d 'write: it\'s done'`, `-l engine -d 'I/O ENGINE: it\'s [a] choice' -x -a 'auto epoll'`,
			"-l key -d 'FILE of the key' -r -F", "-l json -d 'write JSON'\n", "-f -a 'put'"},
	} {
		got := script(t, shell)
		for _, want := range lines {
			if !strings.Contains(got, want) {
				t.Errorf("%s: nothing has %s in\n%s", shell, want, got)
			}
		}
	}
	var p Program
	if err := p.complete(nil, "cmd"); !IsUsage(err) || !strings.Contains(err.Error(), "want bash, zsh, fish") {
		t.Errorf("%v", err)
	}
}
