package cli

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Verb is a command of a program, for the completion of its arguments.
type Verb struct {
	Name, Summary string
	Flags         *flag.FlagSet
	Args          []string // words that can follow; empty: files
}

// Shells are those that Complete writes for.
var Shells = []string{"bash", "zsh", "fish"}

// Complete writes a script that has a shell complete the commands and flags of a
// program. values are what the value of a flag can be, by the word in capitals that
// stands for it; FILE and PATH are files. The error is a UsageError for another shell.
func Complete(w io.Writer, shell, program string, verbs []Verb, values map[string][]string) error {
	c := completion{w, program, verbs, values}
	switch shell {
	case "bash":
		c.bash()
	case "zsh":
		c.zsh()
	case "fish":
		c.fish()
	default:
		return Usagef("no completion for %q: want %s", shell, strings.Join(Shells, ", "))
	}
	return nil
}

// CompletionHelp says how each script is installed.
func CompletionHelp(program string) string {
	return strings.ReplaceAll(`Writes a script to standard output that has the shell complete commands, flags and
their values.

  bash   source <(PROGRAM completion bash)
  zsh    source <(PROGRAM completion zsh)
  fish   PROGRAM completion fish | source

To have it in every shell write the script where the shell looks for it:
/etc/bash_completion.d, a directory of zsh's fpath as _PROGRAM, or
~/.config/fish/completions/PROGRAM.fish.`, "PROGRAM", program)
}

type completion struct {
	w       io.Writer
	program string
	verbs   []Verb
	values  map[string][]string
}

// option is a flag as the shells need it.
type option struct {
	name, value, usage string
	words              []string
	files              bool
}

func (c *completion) options(v Verb) (all []option) {
	v.Flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		o := option{name: f.Name, value: value, usage: usage, words: c.values[value]}
		o.files = value == "FILE" || value == "PATH"
		all = append(all, o)
	})
	return all
}

func (c *completion) names() (all []string) {
	for _, v := range c.verbs {
		all = append(all, v.Name)
	}
	return all
}

func (c *completion) bash() {
	fmt.Fprintf(c.w, `# bash completion of %[1]s
_%[1]s() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
    %[2]s) command=$word; break ;;
    esac
  done
  case $command:$prev in
`, c.program, strings.Join(c.names(), "|"))
	for _, v := range c.verbs {
		for _, o := range c.options(v) {
			switch {
			case o.files:
				fmt.Fprintf(c.w, "  %s:--%s) compopt -o default 2>/dev/null; return ;;\n", v.Name, o.name)
			case o.value != "":
				fmt.Fprintf(c.w, "  %s:--%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", v.Name, o.name, strings.Join(o.words, " "))
			}
		}
	}
	fmt.Fprintf(c.w, "  esac\n  case $command in\n  '') COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", strings.Join(c.names(), " "))
	for _, v := range c.verbs {
		words := slices.Clone(v.Args)
		for _, o := range c.options(v) {
			words = append(words, "--"+o.name)
		}
		fmt.Fprintf(c.w, "  %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", v.Name, strings.Join(words, " "))
	}
	fmt.Fprintf(c.w, `  esac
  [[ $cur == -* || ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default 2>/dev/null
}
complete -F _%[1]s %[1]s
`, c.program)
}

func (c *completion) zsh() {
	quote := func(s string) string {
		return strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(s)
	}
	fmt.Fprintf(c.w, "#compdef %[1]s\n_%[1]s() {\n  local -a commands=(\n", c.program)
	for _, v := range c.verbs {
		fmt.Fprintf(c.w, "    '%s:%s'\n", v.Name, quote(v.Summary))
	}
	fmt.Fprint(c.w, "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  case $words[2] in\n")
	for _, v := range c.verbs {
		fmt.Fprintf(c.w, "  %s)\n    _arguments", v.Name)
		for _, o := range c.options(v) {
			fmt.Fprintf(c.w, " \\\n      '--%s[%s]", o.name, quote(o.usage))
			switch {
			case o.files:
				fmt.Fprintf(c.w, ":%s:_files", o.value)
			case o.value != "":
				fmt.Fprintf(c.w, ":%s:(%s)", o.value, strings.Join(o.words, " "))
			}
			fmt.Fprint(c.w, "'")
		}
		rest := "_files"
		if len(v.Args) > 0 {
			rest = "(" + strings.Join(v.Args, " ") + ")"
		}
		fmt.Fprintf(c.w, " \\\n      '*:argument:%s' ;;\n", rest)
	}
	fmt.Fprintf(c.w, "  esac\n}\nif [[ $funcstack[1] == _%[1]s ]]; then _%[1]s \"$@\"; else compdef _%[1]s %[1]s; fi\n", c.program)
}

func (c *completion) fish() {
	quote := func(s string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) }
	for _, v := range c.verbs {
		fmt.Fprintf(c.w, "complete -c %s -n __fish_use_subcommand -f -a %s -d '%s'\n", c.program, v.Name, quote(v.Summary))
	}
	for _, v := range c.verbs {
		when := fmt.Sprintf("complete -c %s -n '__fish_seen_subcommand_from %s'", c.program, v.Name)
		for _, o := range c.options(v) {
			fmt.Fprintf(c.w, "%s -l %s -d '%s'", when, o.name, quote(o.usage))
			switch {
			case o.files:
				fmt.Fprint(c.w, " -r -F")
			case o.value != "":
				fmt.Fprintf(c.w, " -x -a '%s'", strings.Join(o.words, " "))
			}
			fmt.Fprintln(c.w)
		}
		if len(v.Args) > 0 {
			fmt.Fprintf(c.w, "%s -f -a '%s'\n", when, strings.Join(v.Args, " "))
		}
	}
}
