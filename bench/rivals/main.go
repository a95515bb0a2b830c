package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// errNoSuch says that a server is not here.
var errNoSuch = errors.New("not one of the rivals")

// run is the program; it returns its exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] != child.Command {
		fmt.Fprintln(stderr, "rivals: the benchmark starts this program: go run ./bench --rivals, in the directory of the library")
		return cli.Usage
	}
	return child.Main(func() error {
		switch args := args[1:]; {
		case len(args) == 4 && args[0] == "server":
			cores, err := strconv.Atoi(args[3])
			if err != nil {
				return fmt.Errorf("cores of server %s: %w", args[1], err)
			}
			start := func() (child.Server, error) { return startServer(args[1], args[2] == child.ModeSecure, cores) }
			return child.ServeServer(args[1], start, stdin, stdout)
		case len(args) == 2 && args[0] == "client":
			open := func(ctx context.Context, o load.Options) (child.Load, error) { return openClient(ctx, args[1], o) }
			return child.ServeClient(open, stdin, stdout)
		}
		return fmt.Errorf("unknown child %q", args)
	}, stderr)
}

// startServer starts a rival on a free port of the loopback address, on so many CPUs; 0
// are all.
func startServer(name string, secure bool, cores int) (child.Server, error) {
	if cores > 0 {
		runtime.GOMAXPROCS(cores)
	}
	switch name {
	case "netpoll":
		return child.Started(newNetpoll(secure))
	case "grpc":
		return child.Started(newGRPC())
	}
	return nil, errNoSuch
}

// openClient connects to a rival that has a client here.
func openClient(ctx context.Context, name string, o load.Options) (child.Load, error) {
	if name == "grpc" {
		return openGRPC(ctx, o)
	}
	return nil, errNoSuch
}
