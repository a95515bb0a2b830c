package cli

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// Shells are those for which every program writes a completion.
var Shells = []string{"bash", "zsh", "fish"}

// verbs are all commands of the program, those that every program has included.
func (p *Program) verbs() []Command {
	all := append([]Command(nil), p.Commands...)
	for _, c := range []Command{
		{Name: "version", Help: "what this program was built from"},
		{Name: "completion", Args: "SHELL", Help: "have the shell complete arguments: source <(" + p.Name + " completion bash)"},
		{Name: "help", Args: "[COMMAND]", Help: "this text, or that of a command"},
	} {
		if p.command(c.Name) == nil {
			all = append(all, c)
		}
	}
	return all
}

// words are what can follow a command beside its flags.
func (p *Program) words(c Command) (all []string) {
	switch c.Name {
	case "completion":
		return Shells
	case "help":
		for _, c := range p.Commands {
			all = append(all, c.Name)
		}
	}
	return all
}

// complete writes a script that has a shell complete commands, flags and their values.
func (p *Program) complete(w io.Writer, shell string) error {
	switch shell {
	case "bash":
		p.bash(w)
	case "zsh": // which runs what is written for bash
		fmt.Fprintf(w, "#compdef %s\nautoload -U +X bashcompinit && bashcompinit\n", p.Name)
		p.bash(w)
	case "fish":
		p.fish(w)
	default:
		return Usagef("no completion for %q: want %s", shell, strings.Join(Shells, ", "))
	}
	return nil
}

// options calls f for each flag of a command, with the word that stands for its value, empty
// for none, and what that can be.
func (p *Program) options(c Command, f func(name, value, usage string, words []string, files bool)) {
	flags := c.Flags
	if flags == nil {
		flags = p.Flags
	}
	if flags == nil {
		return
	}
	flags.VisitAll(func(o *flag.Flag) {
		value, usage := flag.UnquoteUsage(o)
		files := value == "FILE" || value == "PATH" || value == "DIR" || value == "DIRECTORY"
		f(o.Name, value, usage, p.Values[value], files)
	})
}

func (p *Program) bash(w io.Writer) {
	fmt.Fprintf(w, `_%[1]s() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
    %[2]s) command=$word; break ;;
    esac
  done
  case $command:$prev in
`, p.Name, strings.Join(p.names(), "|"))
	for _, v := range p.verbs() {
		p.options(v, func(name, value, _ string, words []string, files bool) {
			switch {
			case files:
				fmt.Fprintf(w, "  %s:--%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", v.Name, name)
			case value != "":
				fmt.Fprintf(w, "  %s:--%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", v.Name, name, strings.Join(words, " "))
			}
		})
	}
	fmt.Fprintf(w, "  esac\n  case $command in\n  '') COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", strings.Join(p.names(), " "))
	for _, v := range p.verbs() {
		words := p.words(v)
		p.options(v, func(name, _, _ string, _ []string, _ bool) { words = append(words, "--"+name) })
		fmt.Fprintf(w, "  %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", v.Name, strings.Join(words, " "))
	}
	fmt.Fprintf(w, `  esac
  [[ $cur == -* || ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -o filenames -F _%[1]s %[1]s
`, p.Name)
}

func (p *Program) fish(w io.Writer) {
	quote := func(s string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) }
	for _, v := range p.verbs() {
		fmt.Fprintf(w, "complete -c %s -n __fish_use_subcommand -f -a %s -d '%s'\n", p.Name, v.Name, quote(v.Help))
		when := fmt.Sprintf("complete -c %s -n '__fish_seen_subcommand_from %s'", p.Name, v.Name)
		p.options(v, func(name, value, usage string, words []string, files bool) {
			fmt.Fprintf(w, "%s -l %s -d '%s'", when, name, quote(usage))
			switch {
			case files:
				fmt.Fprint(w, " -r -F")
			case value != "":
				fmt.Fprintf(w, " -x -a '%s'", strings.Join(words, " "))
			}
			fmt.Fprintln(w)
		})
		if words := p.words(v); len(words) > 0 {
			fmt.Fprintf(w, "%s -f -a '%s'\n", when, strings.Join(words, " "))
		}
	}
}
