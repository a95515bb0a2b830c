// Command cephclient is a small client of a Ceph cluster, as an example of what
// can be built on package control: it shows the cluster's status and monmap, and
// writes, reads, stats and removes objects.
//
//	cephclient --mon v2:10.0.0.1:3300 --keyring admin.keyring status
//	cephclient --mon v2:10.0.0.1:3300 --keyring admin.keyring put POOL OBJECT FILE
//
// It connects with cephx if it has a keyring, else with method none. Run it
// with -h for all of it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, env{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:]))
}

// env is what the program gets from its surroundings.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}
