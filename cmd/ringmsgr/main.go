package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, env{os.Stdin, os.Stdout, os.Stderr, time.Now, cli.GrowProcs, nil}, os.Args[1:]))
}
