package cli_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

func TestAProgramRunsItsCommandsAndSaysHowItIsCalled(t *testing.T) {
	for _, c := range []struct {
		args           string
		status         int
		stdout, stderr string
	}{
		{"one A", cli.OK, "", ""},
		{"one --level 3 A", cli.OK, "", ""},
		{"some A", cli.OK, "", ""},
		{"some A B", cli.OK, "", ""},
		{"many A B C", cli.OK, "", ""},
		{"version", cli.OK, "tool ", ""},
		{"version --json", cli.OK, `"platform":"`, ""},
		{"--version", cli.OK, "tool ", ""},
		{"help", cli.OK, "many A B...", ""},
		{"help some", cli.OK, "takes one or two", ""},
		{"help dance", cli.Usage, "", `no command "dance"`},
		{"completion bash", cli.OK, "__complete", ""},
		{"completion zsh", cli.OK, "__complete", ""},
		{"completion fish", cli.OK, "__complete", ""},
		{"completion", cli.Usage, "", "want one shell: bash, zsh, fish"},
		{"completion cmd", cli.Usage, "", "want one shell: bash, zsh, fish"},
		{"mani A", cli.Usage, "", `no command "mani": did you mean many?`},
		{"--help", cli.OK, "many A B...", ""},
		{"fails", cli.Failed, "", "tool fails: it cannot; nor that\n"},
		{"", cli.Usage, "", "no command\nrun 'tool -h' for help\n"},
		{"dance", cli.Usage, "", `no command "dance"`},
		{"version more", cli.Usage, "", "usage: tool version"},
		{"one", cli.Usage, "", "usage: tool one A [flags]\n"},
		{"one A B", cli.Usage, "", "usage: tool one A [flags]\n"},
		{"some", cli.Usage, "", "some A [B]"},
		{"some A B C", cli.Usage, "", "some A [B]"},
		{"many A", cli.Usage, "", "many A B..."},
		{"one A --level x", cli.Usage, "", "--level"},
		{"one -l 3 A", cli.OK, "", ""},
		{"one --first A", cli.OK, "", ""},
		{"one --first A B", cli.Usage, "", "usage: tool one A [flags]\n"},
	} {
		var got []string
		run := func(_ context.Context, args []string) error { got = args; return nil }
		fails := func(context.Context, []string) error {
			return errors.Join(errors.New("it cannot"), errors.New("nor that"))
		}
		var first string
		given := func() []string { return strings.Fields(first) }
		p := cli.Program{Name: "tool", About: "a test", Flags: cli.NewFlags("tool"), Letters: map[string]string{"level": "l"}, Commands: []cli.Command{
			{Name: "one", Args: "A", Help: "takes one", Given: given, Run: run}, {Name: "some", Args: "A [B]", Help: "takes one or two", Run: run},
			{Name: "many", Args: "A B...", Help: "takes two or more", Run: run}, {Name: "fails", Help: "cannot", Run: fails},
		}}
		p.Flags.StringVar(&first, "first", "", "`A`, in place of the argument")
		p.Flags.Int("level", 1, "a `NUMBER`")
		p.Flags.String("levels", "", "some `LEVELS`")
		clitest.Check(t, func(_ io.Reader, stdout, stderr io.Writer, args []string) int {
			return p.Run(t.Context(), stdout, stderr, args)
		}, "", c.args, c.status, c.stdout, c.stderr)
		if words := strings.Fields(strings.NewReplacer("--level 3 ", "", "-l 3 ", "", "--first ", "").Replace(c.args)); c.status == cli.OK && got != nil && len(got) != len(words)-1 {
			t.Errorf("%s: it got %q", c.args, got)
		}
	}
}
