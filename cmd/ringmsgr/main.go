package main

import (
	"context"
	"os"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func main() {
	cli.Main(func(ctx context.Context, args []string) int {
		return run(ctx, env{os.Stdin, os.Stdout, os.Stderr, time.Now, cli.GrowProcs, nil}, args)
	})
}
