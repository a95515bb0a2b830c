package cli_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

// A command need not look whether its output was taken: the program fails if not.
func TestAProgramFailsWhoseOutputIsNotTaken(t *testing.T) {
	for args, says := range map[string]string{"list": "tool list: no space left on device\n", "wrong": "tool wrong: it cannot\n", "version": "no space"} {
		out := cli.NewOutput(clitest.Full{})
		p := &cobra.Command{Use: "tool"}
		print := func(err error) func(*cobra.Command, []string) error {
			return func(*cobra.Command, []string) error { fmt.Fprintln(out, "one"); return err }
		}
		p.AddCommand(&cobra.Command{Use: "list", RunE: print(nil)}, &cobra.Command{Use: "wrong", RunE: print(errors.New("it cannot"))})
		var errs strings.Builder
		if status := cli.Run(t.Context(), p, out, &errs, []string{args}); status != cli.Failed || !strings.Contains(errs.String(), says) {
			t.Errorf("%s: status %d, %q", args, status, errs.String())
		}
	}
}

// A program without commands takes its own arguments.
func TestAProgramMayBeOneCommand(t *testing.T) {
	for args, status := range map[string]int{"A": cli.OK, "--level 3 A": cli.OK, "": cli.Usage, "A B": cli.Usage, "version": cli.OK, "--version": cli.OK, "-h": cli.OK} {
		got := ""
		p := &cobra.Command{Use: "tool A", RunE: func(_ *cobra.Command, args []string) error { got = args[0]; return nil }}
		p.Flags().Int("level", 1, "a `NUMBER`")
		if s := cli.Run(t.Context(), p, io.Discard, io.Discard, strings.Fields(args)); s != status || (got == "A") != (s == cli.OK && strings.HasSuffix(args, "A")) {
			t.Errorf("%q: status %d, it got %q", args, s, got)
		}
	}
}

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
		{"version", cli.OK, ", " + runtime.Version() + " ", ""},
		{"version --json", cli.OK, `","go":"` + runtime.Version() + `","platform":"`, ""},
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
		{"one -- --level", cli.OK, "", ""},
	} {
		var got []string
		run := func(_ *cobra.Command, args []string) error { got = args; return nil }
		fails := func(*cobra.Command, []string) error {
			return errors.Join(errors.New("it cannot"), errors.New("nor that"))
		}
		p := &cobra.Command{Use: "tool", Short: "a test"}
		p.PersistentFlags().Int("level", 1, "a `NUMBER`")
		p.PersistentFlags().String("levels", "", "some `LEVELS`")
		p.AddCommand(&cobra.Command{Use: "one A", Short: "takes one", RunE: run}, &cobra.Command{Use: "some A [B]", Short: "takes one or two", RunE: run},
			&cobra.Command{Use: "many A B...", Short: "takes two or more", RunE: run}, &cobra.Command{Use: "fails", Short: "cannot", RunE: fails})
		clitest.Check(t, func(_ io.Reader, stdout, stderr io.Writer, args []string) int {
			return cli.Run(t.Context(), p, stdout, stderr, args)
		}, "", c.args, c.status, c.stdout, c.stderr)
		if words := strings.Fields(strings.NewReplacer("--level 3 ", "", "-- ", "").Replace(c.args)); c.status == cli.OK && got != nil && len(got) != len(words)-1 {
			t.Errorf("%s: it got %q", c.args, got)
		}
	}
}
