package main

import (
	"context"
	"flag"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
)

func completionCommand() command {
	return command{
		name: "completion", args: "SHELL", summary: "have the shell complete commands and flags",
		help:    cli.CompletionHelp("ringmsgr"),
		example: "source <(ringmsgr completion bash)",
		setup: func(*flag.FlagSet) runner {
			return func(_ context.Context, e env, args []string) error {
				if len(args) != 1 {
					return cli.Usagef("want one shell: bash, zsh or fish")
				}
				return cli.Complete(e.stdout, args[0], "ringmsgr", verbs(), values())
			}
		},
	}
}

// verbs are the commands, and help.
func verbs() (all []cli.Verb) {
	for _, c := range commands() {
		fs := cli.NewFlags(c.name)
		c.setup(fs)
		v := cli.Verb{Name: c.name, Summary: c.summary, Flags: fs}
		if c.name == "completion" {
			v.Args = cli.Shells
		}
		all = append(all, v)
	}
	return append(all, cli.Verb{Name: "help", Summary: "about a command or a topic", Flags: cli.NewFlags("help"), Args: helpNames()})
}

// values are what the values of flags can be.
func values() map[string][]string {
	return map[string][]string{
		"ENGINE": flags.Backends, "METHOD": {"none", "cephx"}, "METHODS": {"snappy", "zlib", "zstd", "lz4"},
		"LEVEL": flags.Levels, "MODE": {"auto", "buffers", "ready"}, "LIST": {"crc", "secure", "secure,crc"},
		"POLICY": control.PolicyNames(), "REVISION": {"0", "1"}, "RULES": {"auto", "none", "cpu", "hint", "table"},
		"ORDER": {"rate", "bytes", "queue", "lag", "core", "peer", "id"},
	}
}
