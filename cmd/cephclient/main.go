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

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func main() {
	cli.Main(func(ctx context.Context, args []string) int {
		return run(ctx, env{os.Stdin, os.Stdout, os.Stderr}, args)
	})
}

// env is what the program gets from its surroundings.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}
