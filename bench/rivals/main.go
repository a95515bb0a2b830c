// Command rivals has servers of other libraries that a program could use for requests
// and responses, for the benchmark to compare: cloudwego/netpoll with the frames of
// msgr2, and gRPC-go with bytes in place of protobuf, by streams.
//
//	go run ./bench --rivals
//	go run ./bench --servers net,io_uring,netpoll,grpc
//
// The benchmark builds and starts it, and speaks to it as to its own servers (package child).
// It is a module of its own, so that the measured module does not depend on these libraries.
// Each server has the settings that its own documents recommend for speed, each with its
// reason.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

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
	return child.Main(args[1:], func(s child.Spec) error {
		if s.Client {
			open := func(ctx context.Context, o load.Options) (child.Load, error) { return openClient(ctx, s.Name, o) }
			return child.ServeClient(open, stdin, stdout)
		}
		start := func() (child.Server, error) { return startServer(s.Name, s.Secure, s.Cores) }
		return child.ServeServer(s.Name, 0, start, stdin, stdout)
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
