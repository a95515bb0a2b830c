package main

import (
	"context"
	"flag"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func versionCommand() command {
	return command{
		name: "version", args: "[flags]", summary: "what this program was built from",
		help: `Prints the version of the module, the commit, and the Go toolchain. The commit is
missing if the program was built outside of a clone.`,
		example: "ringmsgr version --json",
		json:    `{"version":"...","commit":"...","modified":false,"go":"...","platform":"linux/amd64"}`,
		setup: func(fs *flag.FlagSet) runner {
			asJSON := fs.Bool("json", false, "write JSON")
			return func(_ context.Context, e env, args []string) error {
				if len(args) > 0 {
					return cli.Usagef("unexpected argument %q", args[0])
				}
				return cli.PrintVersion(e.stdout, "ringmsgr", *asJSON)
			}
		},
	}
}
